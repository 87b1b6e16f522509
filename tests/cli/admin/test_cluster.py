import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.running import roquet

from roquet import __version__
from roquet.admin import brokers
from roquet.admin.replicas import ReplicaStatus, problems
from roquet.cli.admin import cluster
from roquet.cli.terminal import output
from roquet.model.errors import ConnectFailed, UsageError
from roquet.testing.cluster import BlockingCluster

CLUSTER = {"brokers": 2}


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


def test_a_healthy_cluster_is_one_line_and_code_0(namesrv: str) -> None:
    result = roquet("cluster", "health", "--brokers", 2, "-n", namesrv)
    assert result.exit_code == 0
    assert result.output.startswith("healthy: 1 name server, 2 brokers, 0 replicas, ")
    assert result.output.count("\n") == 1


def test_a_cluster_that_is_not_healthy_is_one_line_with_the_reasons_and_code_1(
    namesrv: str,
) -> None:
    away = f"{namesrv};127.0.0.1:1"
    result = roquet("cluster", "health", "--brokers", 3, "-n", away)
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.startswith("not healthy: name server 127.0.0.1:1 does not answer: ")
    assert result.stdout.endswith("; 2 brokers with a master, and there have to be 3\n")
    shown = json.loads(roquet("cluster", "health", "--json", "-n", away).stdout)
    assert (shown["healthy"], len(shown["problems"]), shown["brokers"]) == (False, 1, 2)
    assert roquet("cluster", "health", "--brokers", 0).exit_code == 2


NOW_MS = 1_700_000_005_000


@pytest.fixture(scope="module")
def replicated() -> Iterator[str]:
    with BlockingCluster(brokers=1) as cluster:
        cluster.add_replica()
        yield cluster.namesrv_addr


def status(broker_id: int | None, **fields: Any) -> ReplicaStatus:
    known = {"broker": "broker-a", "address": f"h:{broker_id}", "is_master": broker_id == 0}
    return ReplicaStatus(broker_id=broker_id, **{**known, **fields})


def cells(*shown: ReplicaStatus) -> list[list[str]]:
    console = output.console()
    with console.capture() as capture:
        console.print(cluster.replica_table(shown, NOW_MS))
    return [line.split() for line in capture.get().splitlines()]


def test_a_master_and_its_replica_are_shown_in_a_line_each(replicated: str) -> None:
    result = roquet("cluster", "replicas", "broker-a", "-n", replicated)
    head, master, replica = (line.split() for line in result.stdout.splitlines())
    assert head == ["broker", "id", "role", "address", "in", "sync", "lag", "bytes", "lag", "last",
                    "contact"]  # fmt: skip
    assert (master[:3], replica[:3]) == (["broker-a", "0", "master"], ["broker-a", "1", "replica"])
    lines = roquet("cluster", "replicas", "--json", "-n", replicated).stdout.splitlines()
    assert [json.loads(line)["broker_id"] for line in lines] == [0, 1]
    with pytest.raises(UsageError, match="there is no broker 'broker-x'"):
        roquet("cluster", "replicas", "broker-x", "-n", replicated)


def test_lags_and_times_have_units() -> None:
    _, master, replica, stranger = cells(
        status(0, is_in_sync=True, lag_bytes=0, lag_ms=0),
        status(1, is_in_sync=False, lag_bytes=12_345, lag_ms=61_240, last_contact_ms=NOW_MS - 900),
        status(None, is_in_sync=None),
    )
    assert master == ["broker-a", "0", "master", "h:0", "yes", "0", "0.0", "s", "-"]
    assert replica == [
        "broker-a", "1", "replica", "h:1", "no", "12,345", "61.2", "s", "0.9", "s", "ago",
    ]  # fmt: skip
    assert stranger == ["broker-a", "?", "replica", "h:None", "-", "-", "-", "-"]


def test_the_id_is_that_of_the_controller_which_elect_takes() -> None:
    _, master, replica = cells(status(0, controller_id=3), status(2, controller_id=2))
    assert (master[1], replica[1]) == ("3", "2")
    away = status(0, controller_id=3, is_in_sync=True, is_alive=False)
    assert problems([away]) == ["broker-a 3 at h:0 is away: its controller does not hear of it"]


def test_epochs_have_a_column_where_there_are_any() -> None:
    head, master, replica = cells(status(0, epoch=7), status(1))
    assert "epoch" in head
    assert (master[5], replica[5]) == ("7", "-")


def test_a_line_says_what_is_amiss() -> None:
    assert problems([status(0, is_in_sync=True), status(1, is_in_sync=True)]) == []
    assert problems([status(1, fault="no answer within 3000 ms"), status(2, is_in_sync=False)]) == [
        "broker-a: the master is away, so no message is taken",
        "broker-a 1 at h:1 does not tell how it is: no answer within 3000 ms",
        "broker-a 2 at h:2 is not in sync",
    ]
    diverged = status(1, is_in_sync=False, log_end=900)
    assert problems([status(0, is_in_sync=True), diverged]) == [
        "broker-a 1 at h:1 is not in sync: its log ends beyond the master's, see its log file"
    ]


def test_a_replica_in_sync_that_is_not_heard_of_is_shown_as_such() -> None:
    rows = [
        status(1, is_in_sync=True, silent_ms=12_400, fault="no answer within 3000 ms"),
        status(2, is_in_sync=True, fault="no answer within 3000 ms"),
        status(3, is_in_sync=True, is_alive=False),
        status(4, is_in_sync=True, silent_ms=9_999),
    ]
    texts = [" ".join(line) for line in cells(*rows)]
    for number, said in enumerate(("yes, silent", "yes, no answer -", "yes, away -", "yes -"), 1):
        assert any(
            line.startswith(f"broker-a {number} replica h:{number} {said}") for line in texts
        )
    assert problems([status(0, is_in_sync=True), rows[0]]) == [
        "broker-a 1 at h:1 is silent: its master has heard nothing of it for 12 s"
    ]


def test_too_few_logs_in_sync_and_a_controller_that_is_away_are_amiss() -> None:
    needs = "and messages need 2 (inSyncReplicas, minInSyncReplicas): they are refused, or stored"
    needs += " and answered FLUSH_SLAVE_TIMEOUT"
    away = "broker-a 1 at h:1 is away: its controller does not hear of it"
    master = status(0, is_in_sync=True, logs_needed=2)
    assert problems([master, status(1, is_in_sync=True)]) == []
    assert problems([master]) == [f"broker-a: 1 log is in sync, {needs}"]
    assert problems([master, status(1, is_in_sync=True, is_alive=False)]) == [
        f"broker-a: 1 log is in sync, {needs}",
        away,
    ]
    fault = "no controller leads: c:1: refused"
    assert problems([status(n, is_in_sync=True, controller_fault=fault) for n in (0, 1)]) == [
        f"broker-a: {fault}; its master takes no message once its lease is over"
    ]
