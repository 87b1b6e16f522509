import json
from collections.abc import Iterator

import pytest
from tests.cli.running import roquet
from typer.testing import CliRunner

from roquet.cli.admin import name_server
from roquet.cli.main import app
from roquet.model.errors import RoquetError, UsageError
from roquet.testing.cluster import BlockingCluster


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with BlockingCluster(namesrvs=2) as cluster:
        yield cluster.namesrv_addr


def settings_of(namesrv: str, *more: str) -> list[dict[str, str]]:
    lines = roquet("namesrv", "settings", "--json", "-n", namesrv, *more).output.splitlines()
    return [json.loads(line)["settings"] for line in lines]


def test_the_settings_of_each_name_server_are_shown_with_what_may_change(namesrv: str) -> None:
    addresses = namesrv.split(";")
    lines = roquet("namesrv", "settings", "-n", namesrv).output.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == addresses
    assert lines.count("  orderMessageEnable = false") == 2
    assert lines.count("  scanNotActiveBrokerInterval = 5000   (read at the start)") == 2
    first = json.loads(
        roquet("namesrv", "settings", "--json", "-n", namesrv).output.splitlines()[0]
    )
    assert first["name_server"] == addresses[0]
    assert "logLevels" in first["changeable"]
    assert "listenPort" not in first["changeable"]


def test_settings_without_effect_are_shown_when_asked_for(namesrv: str) -> None:
    few, many = settings_of(namesrv)[0], settings_of(namesrv, "--all")[0]
    assert many.items() > few.items()
    assert many["serverSelectorThreads"] == "3"
    assert "serverSelectorThreads" not in few


def test_a_setting_is_changed_at_every_name_server_after_a_preview(namesrv: str) -> None:
    first, second = namesrv.split(";")
    change = ("namesrv", "set", "order_messages=true", "enableAllTopicList=false", "-n", namesrv)
    assert roquet(*change, "--dry-run").output.splitlines() == [
        f"{first}: order_messages is false, then true",
        f"{first}: enableAllTopicList is true, then false",
        f"{second}: order_messages is false, then true",
        f"{second}: enableAllTopicList is true, then false",
        "nothing was changed (--dry-run)",
    ]
    assert settings_of(namesrv)[0]["orderMessageEnable"] == "false"
    done = roquet(*change, "--yes").output.splitlines()[-1]
    assert done == f"{first}, {second}: changed until the next start"
    for values in settings_of(namesrv):
        assert (values["orderMessageEnable"], values["enableAllTopicList"]) == ("true", "false")
    back = roquet("namesrv", "set", "order_messages=false", "-y", "--json", "-n", namesrv)
    assert json.loads(back.stdout.splitlines()[1]) == {
        "name_server": second,
        "key": "order_messages",
        "now": "true",
        "then": "false",
        "changed": True,
    }


def test_the_answer_no_changes_nothing_and_sets_the_exit_code(namesrv: str) -> None:
    refused = roquet("namesrv", "set", "notify_lowest_id=true", "-n", namesrv, typed="n\n")
    assert refused.exit_code == 1
    assert "Change 1 setting of 2 name servers until the next start?" in refused.output
    assert settings_of(namesrv)[0]["notifyMinBrokerIdChanged"] == "false"


def test_what_would_change_nothing_is_an_error(namesrv: str) -> None:
    change = ("namesrv", "set", "-y", "-n", namesrv)
    with pytest.raises(UsageError, match="no setting 'order_message'; did you mean"):
        roquet(*change, "order_message=true")
    with pytest.raises(UsageError, match="reads port at its start"):
        roquet(*change, "port=1")
    with pytest.raises(UsageError, match="reads kvConfigPath at its start"):
        roquet(*change, "kvConfigPath=/tmp/x")
    with pytest.raises(UsageError, match="are one setting"):
        roquet(*change, "logLevels=INFO", "log_levels=DEBUG")
    with pytest.raises(UsageError, match="is none of DEBUG"):
        roquet(*change, "log_levels=LOUD")


def test_a_name_server_that_does_not_answer_is_named_and_nothing_is_changed(namesrv: str) -> None:
    first = namesrv.split(";")[0]
    both = f"{first};127.0.0.1:1"
    shown = CliRunner().invoke(app, ["namesrv", "settings", "-n", both])
    assert shown.output.startswith(first)
    assert isinstance(shown.exception, RoquetError)
    with pytest.raises(RoquetError, match="nothing was changed, since not all answer: 127"):
        roquet("namesrv", "set", "notify_lowest_id=true", "-y", "-n", both)
    assert settings_of(first)[0]["notifyMinBrokerIdChanged"] == "false"


def test_all_settings_of_a_genuine_name_server_but_its_files_may_change() -> None:
    values = {"listenPort": "9876", "kvConfigPath": "/x", "waitSecondsForService": "45"}
    assert name_server.may_change(values, "listenPort")
    assert not name_server.may_change(values, "kvConfigPath")
    with pytest.raises(UsageError, match="has no setting 'log_levels'"):
        name_server.setting_key({"a:1": values}, "log_levels")


def test_namesrv_starts_a_name_server_and_has_commands_for_running_ones() -> None:
    text = roquet("namesrv", "--help").output
    assert "Start a name server" in text
    assert "--controller-port" in text
    assert "settings" in text
