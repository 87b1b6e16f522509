import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from roquet import __version__
from roquet.admin import brokers
from roquet.cli.admin import cluster
from roquet.cli.main import app
from roquet.model.errors import ConnectFailed, UsageError
from roquet.testing.cluster import BlockingCluster


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with BlockingCluster(brokers=2) as cluster:
        yield cluster.namesrv_addr


def roquet(*arguments: str) -> Result:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_all_brokers_are_shown_in_a_line_each(namesrv: str) -> None:
    head, *rows = roquet("cluster", "show", "-n", namesrv).output.splitlines()
    assert head.split() == [
        "cluster", "broker", "id", "address", "software", "in/s", "out/s",
    ]  # fmt: skip
    assert all(f"Roquet {__version__}  " in row for row in rows)
    assert [row.split()[:3] for row in rows] == [
        ["DefaultCluster", "broker-a", "0"],
        ["DefaultCluster", "broker-b", "0"],
    ]
    lines = roquet("cluster", "show", "--json", "-n", namesrv).output.splitlines()
    assert [json.loads(line)["broker"] for line in lines] == ["broker-a", "broker-b"]


def test_one_broker_is_shown_in_full(namesrv: str) -> None:
    lines = roquet("cluster", "show", "broker-b", "-n", namesrv).output.splitlines()
    assert lines[0].startswith("DefaultCluster broker-b 0 at ")
    assert any(line.startswith("  brokerVersionDesc = ") for line in lines)


def test_an_unknown_broker_is_named(namesrv: str) -> None:
    with pytest.raises(UsageError, match="there is no broker 'broker-x'"):
        roquet("cluster", "show", "broker-x", "-n", namesrv)


def test_the_rate_of_the_last_ten_seconds_is_rounded() -> None:
    assert cluster.ten_second_rate("0.29997 0.1 0.0") == "0.3"
    assert cluster.ten_second_rate("12345.678 1 2") == "12,345.7"
    assert (cluster.ten_second_rate("?"), cluster.ten_second_rate("")) == ("?", "?")


def test_a_brokers_address_is_refused_as_a_name_servers(namesrv: str) -> None:
    lines = roquet("cluster", "show", "--json", "-n", namesrv).output.splitlines()
    broker = json.loads(lines[0])["address"]
    with pytest.raises(ConnectFailed, match="looks like a broker's address; give that of a name"):
        roquet("cluster", "show", "-n", broker)


def test_an_apache_broker_is_shown_with_its_version() -> None:
    place = {"cluster": "c", "broker": "b", "broker_id": 0, "address": "x:1"}
    apache = brokers.BrokerStatus(**place, info={"brokerVersionDesc": "V4_9_7"})  # type: ignore[arg-type]
    silent = brokers.BrokerStatus(**place, info={})  # type: ignore[arg-type]
    assert (apache.software, apache.version) == ("RocketMQ 4.9.7", "V4_9_7")
    assert silent.software == "?"
