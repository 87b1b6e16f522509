import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roquet.cli.demo import consumer_group, event_log
from roquet.cli.demo.consumer_group import ConsumerProcesses, DemoMember, MemberSettings
from roquet.cli.demo.event_log import QueuesOwned
from roquet.cli.process.child_processes import ChildProcessFailed
from roquet.client.producer import Producer
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.net.clock import SYSTEM_CLOCK
from roquet.testing.cluster import cluster

SOURCE = Path(__file__).parents[3] / "src"


@pytest.fixture(autouse=True)
def _members_find_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))


def group(namesrv: str, directory: Path) -> ConsumerProcesses:
    started_ms = SYSTEM_CLOCK.now_ms()
    settings = MemberSettings(namesrv=namesrv, group="watchers", book="", started_ms=started_ms)
    return ConsumerProcesses(directory, settings, queues=4)


async def handled(group: ConsumerProcesses, count: int) -> int:
    for _ in range(400):
        if event_log.distinct_handled(group.books().values()) == count:
            break
        await asyncio.sleep(0.05)
    return event_log.distinct_handled(group.books().values())


async def test_members_share_the_queues_and_survive_a_killed_one(tmp_path: Path) -> None:
    async with cluster(brokers=1) as running, Producer(running.namesrv_addr) as producer:
        await producer.send_many(
            Message("flights", b"x", properties={"row": str(row)}) for row in range(50)
        )
        members = group(running.namesrv_addr, tmp_path)
        await asyncio.gather(members.join("one"), members.join("two"))
        await members.settled()
        assert sorted(len(queues) for queues in members.owners().values()) == [2, 2]
        await members.kill("one")
        await members.settled()
        assert len(members.owners()["two"]) == 4
        await producer.send_many(
            Message("flights", b"x", properties={"row": str(row)}) for row in range(50, 100)
        )
        assert await handled(members, 100) == 100
        assert members.notes() == sum(len(notes) for notes in members.books().values()) >= 100
        await members.stop()
    assert members.ends_ms.keys() == {"one", "two"}
    *_, everything, nothing = members.owned["two"]
    assert everything.queues == tuple(f"broker-a:{n}" for n in range(4))
    assert nothing.queues == ()  # it left in good order


async def test_a_member_that_dies_by_itself_is_a_failure(tmp_path: Path) -> None:
    members = group("not an address", tmp_path)
    await members.join("one")
    with pytest.raises(ChildProcessFailed, match="one ended with code 1"):
        await members.settled()
    assert members.owners() == {"one": ()}


class FakeMessage:
    """As much of a received message as a member looks at."""

    def __init__(self, row: int, stored_ms: int) -> None:
        self.properties = {"row": str(row)}
        self.stored_ms = stored_ms


def queue(broker: str, number: int) -> MessageQueue:
    return MessageQueue("flights", broker, number)


async def test_a_flight_is_in_the_book_when_the_handler_returns(tmp_path: Path) -> None:
    book = os.open(tmp_path / "book", os.O_WRONLY | os.O_CREAT, 0o644)
    started_ms = SYSTEM_CLOCK.now_ms()
    handler: Any = DemoMember(book, started_ms=started_ms).handle
    await handler(FakeMessage(7, started_ms + 100))
    await handler(FakeMessage(9, started_ms - 1))
    os.close(book)
    notes = event_log.read((tmp_path / "book").read_bytes())
    assert [(note.row, note.stored_ms) for note in notes] == [(7, 100), (9, 0)]


def test_a_member_says_which_queues_it_owns_after_each_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = DemoMember(book=-1, started_ms=0)
    one.gained([queue("a", 1), queue("a", 0)])
    one.lost([queue("a", 1)])
    lines = capsys.readouterr().out.splitlines()
    owned_queues = [msgspec.json.decode(line, type=QueuesOwned).queues for line in lines]
    assert owned_queues == [("a:0", "a:1"), ("a:0",)]


def test_a_queue_is_called_by_its_broker_and_number() -> None:
    assert consumer_group.name_of(queue("broker-a", 3)) == "broker-a:3"
