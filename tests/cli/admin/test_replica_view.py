import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from roquet.admin.replicas import ReplicaStatus, problems
from roquet.cli.admin import replica_view
from roquet.cli.main import app
from roquet.cli.terminal import output
from roquet.model.errors import UsageError
from roquet.testing.cluster import BlockingCluster

NOW_MS = 1_700_000_005_000


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with BlockingCluster(brokers=1) as cluster:
        cluster.add_replica()
        yield cluster.namesrv_addr


def roquet(*arguments: str) -> Result:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def status(broker_id: int | None, **fields: Any) -> ReplicaStatus:
    known = {"broker": "broker-a", "address": f"h:{broker_id}", "is_master": broker_id == 0}
    return ReplicaStatus(broker_id=broker_id, **{**known, **fields})


def cells(*shown: ReplicaStatus) -> list[list[str]]:
    console = output.console()
    with console.capture() as capture:
        console.print(replica_view.replica_table(shown, NOW_MS))
    return [line.split() for line in capture.get().splitlines()]


def test_a_master_and_its_replica_are_shown_in_a_line_each(namesrv: str) -> None:
    result = roquet("cluster", "replicas", "broker-a", "-n", namesrv)
    head, master, replica = (line.split() for line in result.stdout.splitlines())
    assert head == ["broker", "id", "role", "address", "in", "sync", "lag", "bytes", "lag", "last",
                    "contact"]  # fmt: skip
    assert (master[:3], replica[:3]) == (["broker-a", "0", "master"], ["broker-a", "1", "replica"])
    lines = roquet("cluster", "replicas", "--json", "-n", namesrv).stdout.splitlines()
    assert [json.loads(line)["broker_id"] for line in lines] == [0, 1]
    with pytest.raises(UsageError, match="there is no broker 'broker-x'"):
        roquet("cluster", "replicas", "broker-x", "-n", namesrv)


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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals")
@pytest.mark.parametrize("as_json", [False, True])
async def test_watching_goes_on_until_ctrl_c(namesrv: str, as_json: bool) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "roquet", "cluster", "replicas", "--watch", "-n", namesrv),
        *(["--json"] if as_json else []),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        lines = [await process.stdout.readline() for _ in range(2 if as_json else 4)]
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
    if as_json:
        assert [json.loads(line)["broker_id"] for line in lines] == [0, 1]
    else:
        assert lines[0].startswith(b"broker")
