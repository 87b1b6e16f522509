import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roquet.cli.demo import event_log, member
from roquet.cli.demo.event_log import QueuesOwned
from roquet.cli.demo.member import DemoMember
from roquet.model.queue import MessageQueue
from roquet.net.clock import SYSTEM_CLOCK


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
    assert member.name_of(queue("broker-a", 3)) == "broker-a:3"
