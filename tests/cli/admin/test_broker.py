import json

import pytest
from tests.cli.running import must_fail, roquet

from roquet.cli.admin import broker
from roquet.model.errors import RoquetError, UsageError


def test_a_setting_is_changed_after_a_preview(namesrv: str) -> None:
    change = ("broker", "set", "broker-a", "autoCreateTopicEnable=false", "-n", namesrv)
    dry = roquet(*change, "--dry-run").output
    assert dry.splitlines() == [
        "broker-a: autoCreateTopicEnable is true, then false",
        "nothing was changed (--dry-run)",
    ]
    assert roquet(*change, "--yes").output.splitlines()[-1] == "broker-a: changed"
    shown = roquet("broker", "settings", "broker-a", "-n", namesrv).output.splitlines()
    assert "autoCreateTopicEnable = false" in shown
    settings = json.loads(roquet("broker", "settings", "broker-a", "--json", "-n", namesrv).output)
    assert settings["autoCreateTopicEnable"] == "false"


def test_the_answer_no_changes_nothing_and_sets_the_exit_code(namesrv: str) -> None:
    change = ("broker", "set", "broker-a", "permission=4", "-n", namesrv)
    refused = roquet(*change, typed="n\n")
    assert refused.exit_code == 1
    assert "nothing was done" in refused.output
    settings = json.loads(roquet("broker", "settings", "broker-a", "--json", "-n", namesrv).output)
    assert settings["brokerPermission"] == "6"


def test_wrong_use_is_an_error(namesrv: str) -> None:
    with pytest.raises(UsageError, match="KEY=VALUE is wanted"):
        roquet("broker", "set", "broker-a", "nonsense", "-n", namesrv)
    with pytest.raises(UsageError, match="there is no broker 'broker-x'"):
        roquet("broker", "settings", "broker-x", "-n", namesrv)


def test_broker_starts_a_broker_and_has_commands_for_running_ones() -> None:
    text = roquet("broker", "--help").output
    assert "Start a broker" in text
    assert "--namesrv" in text
    assert "settings" in text


def test_a_setting_may_be_named_in_our_words(namesrv: str) -> None:
    change = ("broker", "set", "broker-a", "transaction_timeout=10s", "-n", namesrv)
    dry = roquet(*change, "--dry-run").output.splitlines()
    assert dry[0] == "broker-a: transaction_timeout is 6000ms, then 10s"
    result = roquet(*change, "--yes", "--json")
    assert json.loads(result.stdout) == {
        "broker": "broker-a",
        "key": "transaction_timeout",
        "now": "6000ms",
        "then": "10s",
        "changed": True,
    }
    assert "transaction_timeout is 6000ms" in result.stderr
    shown = roquet("broker", "settings", "broker-a", "-n", namesrv).output.splitlines()
    assert "transactionTimeOut = 10000" in shown


def test_a_key_that_no_broker_has_and_one_setting_given_twice_are_wrong_use(namesrv: str) -> None:
    change = ("broker", "set", "broker-a", "--dry-run", "-n", namesrv)
    with pytest.raises(UsageError, match="no setting 'transaction_timout'; did you mean"):
        roquet(*change, "transaction_timout=5s")
    with pytest.raises(
        UsageError, match="transactionTimeOut=10000 and transaction_timeout=5s are one setting"
    ):
        roquet(*change, "transactionTimeOut=10000", "transaction_timeout=5s")
    must_fail(UsageError, "foo=1 and foo=2 are one setting", *change, "foo=1", "foo=2")
    unset = roquet(*change, "tls_cert=/x.pem").output.splitlines()[0]
    assert unset == "broker-a: tls_cert is not set, then /x.pem"


def test_a_setting_of_an_apache_broker_has_to_be_named_in_its_own_words() -> None:
    values = {"transactionTimeOut": "6000", "anything": "1"}
    with pytest.raises(UsageError, match="there transaction_timeout is called transactionTimeOut"):
        broker.current_value(values, "broker-x", "transaction_timeout")
    assert broker.current_value(values, "broker-x", "transactionTimeOut") == "6000"
    assert broker.current_value(values, "broker-x", "anything") == "1"


def test_settings_without_effect_are_shown_when_asked_for(namesrv: str) -> None:
    def shown(*more: str) -> dict[str, str]:
        text = roquet("broker", "settings", "broker-a", "--json", "-n", namesrv, *more).output
        settings: dict[str, str] = json.loads(text)
        return settings

    few, many = shown(), shown("--all")
    assert many.items() > few.items()
    assert many["forwardTimeout"] == "3000"
    assert "forwardTimeout" not in few
    assert few["read_internal_topics"] == "false"


def test_a_broker_is_drained_and_takes_messages_again(namesrv: str) -> None:
    def permission() -> str:
        shown = roquet("broker", "settings", "broker-a", "--json", "-n", namesrv).output
        return str(json.loads(shown)["brokerPermission"])

    with pytest.raises(RoquetError, match="must not be stopped yet"):
        roquet("broker", "drain", "broker-a", "--wait", "0", "-n", namesrv)
    assert permission() == "4"
    undone = roquet("broker", "drain", "broker-a", "--undo", "-n", namesrv).output
    assert undone.startswith("broker-a: 127.0.0.1:")
    assert permission() == "6"
    again = roquet("broker", "drain", "broker-a", "--undo", "--json", "-n", namesrv).output
    assert json.loads(again)["name"] == "broker-a"
