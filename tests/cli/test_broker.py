import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from roquet.cli.main import app
from roquet.model.errors import UsageError
from roquet.testing.cluster import BlockingCluster


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with BlockingCluster() as cluster:
        yield cluster.namesrv_addr


def roquet(*arguments: str, typed: str | None = None) -> Result:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments), input=typed)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_setting_is_changed_after_a_look(namesrv: str) -> None:
    change = ("broker", "set", "broker-a", "autoCreateTopicEnable=false", "-n", namesrv)
    dry = roquet(*change, "--dry-run").output
    assert dry.splitlines() == [
        "broker-a: autoCreateTopicEnable is true, then false",
        "nothing was changed (--dry-run)",
    ]
    assert roquet(*change, "--yes").output.splitlines()[-1] == "broker-a: changed"
    shown = roquet("broker", "settings", "broker-a", "-n", namesrv).output.splitlines()
    assert "autoCreateTopicEnable = false" in shown
    found = json.loads(roquet("broker", "settings", "broker-a", "--json", "-n", namesrv).output)
    assert found["autoCreateTopicEnable"] == "false"


def test_a_no_changes_nothing_and_scripts_can_tell(namesrv: str) -> None:
    change = ("broker", "set", "broker-a", "permission=4", "-n", namesrv)
    refused = roquet(*change, typed="n\n")
    assert refused.exit_code == 1
    assert "nothing was done" in refused.output
    found = json.loads(roquet("broker", "settings", "broker-a", "--json", "-n", namesrv).output)
    assert found["brokerPermission"] == "6"


def test_wrong_use_is_told(namesrv: str) -> None:
    with pytest.raises(UsageError, match="KEY=VALUE is wanted"):
        roquet("broker", "set", "broker-a", "nonsense", "-n", namesrv)
    with pytest.raises(UsageError, match="there is no broker 'broker-x'"):
        roquet("broker", "settings", "broker-x", "-n", namesrv)


def test_starting_a_broker_and_asking_one_stand_beside_each_other() -> None:
    text = roquet("broker", "--help").output
    assert "Start a broker" in text
    assert "--namesrv" in text
    assert "settings" in text
