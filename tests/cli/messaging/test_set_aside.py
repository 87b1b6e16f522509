import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.running import roquet
from typer.testing import Result

from roquet.model.errors import RoquetError, UsageError
from roquet.store.store import Draft
from roquet.testing.cluster import BlockingCluster
from roquet.wire.records.property_text import encode_properties
from roquet.wire.records.record import Record

TIMER = "rmq_sys_wheel_timer"


@pytest.fixture
def running() -> Iterator[BlockingCluster]:
    with BlockingCluster(default_queue_count=1) as cluster:
        yield cluster


def in_cluster(running: BlockingCluster, *arguments: str, typed: str | None = None) -> Result:
    return roquet(*arguments, "-n", running.namesrv_addr, typed=typed)


def wait_for_listed(running: BlockingCluster, count: int) -> list[dict[str, Any]]:
    """Wait until so many messages are set aside, and return their fields."""
    lines: list[str] = []
    for _ in range(500):
        lines = in_cluster(running, "set-aside", "ls", "--json").stdout.splitlines()
        if len(lines) >= count:
            break
        time.sleep(0.02)
    assert len(lines) == count
    return [json.loads(line) for line in lines]


def poison(running: BlockingCluster, *properties: bytes) -> None:
    """Messages in the timer topic that the timer cannot handle."""

    async def store() -> None:
        for text in properties:
            running.brokers[0].broker.log.ingest.append_draft(Draft(TIMER, 0, b"body", text))

    running.run(store())


def test_messages_set_aside_are_listed_and_put_back(running: BlockingCluster) -> None:
    result = in_cluster(running, "set-aside", "ls")
    assert (result.stdout, result.stderr) == ("", "no message is set aside\n")
    assert in_cluster(running, "cluster", "show").stderr == ""
    with pytest.raises(RoquetError, match="no message is set aside"):
        in_cluster(running, "set-aside", "retry", "--all")
    nowhere = encode_properties({"TIMER_OUT_MS": "1000", "REAL_TOPIC": "../etc"})
    poison(running, b"\xff\x01\x1b[2J\x02", nowhere)
    first, second = wait_for_listed(running, 2)
    assert first["service"] == "timer"
    assert first["place"].startswith(f"{TIMER}/0/0/")
    assert first["reason"].startswith("MessageIllegal: a timed message has no delivery time")
    assert "cannot be the name of a directory" in second["reason"]
    lines = in_cluster(running, "set-aside", "ls").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [first["message_id"], second["message_id"]]
    assert "has set 2 messages aside" in in_cluster(running, "cluster", "show").stderr
    dry = in_cluster(running, "set-aside", "retry", first["message_id"].lower(), "--dry-run")
    assert dry.stdout.splitlines()[0] == lines[0]
    result = in_cluster(running, "set-aside", "retry", first["message_id"], "--yes", "--json")
    assert [json.loads(line)["put_back"] for line in result.stdout.splitlines()] == [True]
    wait_for_listed(running, 3)  # it cannot be handled this time either
    assert in_cluster(running, "set-aside", "retry", "--all", "-y").stdout.endswith("3 put back\n")
    wait_for_listed(running, 6)
    assert in_cluster(running, "set-aside", "retry", "--all", "-y").stdout.endswith("3 put back\n")


def test_putting_back_needs_a_choice_of_messages(running: BlockingCluster) -> None:
    for arguments in ([], ["--all", "0A"]):
        with pytest.raises(UsageError, match="say which"):
            in_cluster(running, "set-aside", "retry", *arguments)
    poison(running, b"\xff")
    wait_for_listed(running, 1)
    with pytest.raises(UsageError, match="0A is not the id"):
        in_cluster(running, "set-aside", "retry", "0A", "-y")


def test_a_message_that_cannot_be_put_back_is_reported(running: BlockingCluster) -> None:
    poison(running, b"\xff")
    (first,) = wait_for_listed(running, 1)

    def refuse(kept: Record) -> None:
        raise ValueError("odd")

    running.brokers[0].broker.delivery.set_aside.retry = refuse  # type: ignore[method-assign]
    result = in_cluster(running, "set-aside", "retry", "--all", "-y")
    assert result.exit_code == 1
    assert f"{first['message_id']}: code 1: Put message back to its service failed. odd" in (
        result.stderr
    )
