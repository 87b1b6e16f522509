"""Messages that wait for a handler or a read."""

import asyncio
from typing import Any

from roquet.client.reading.inbox import Inbox
from roquet.client.reading.message import ReceivedMessage, owner_of

OWNERS: dict[str, object] = {}


class FakeMessage:
    """The parts of a message that an inbox uses."""

    def __init__(self, name: str, is_held: bool = True) -> None:
        self.name = name
        self.is_held = is_held
        self._owner = OWNERS.setdefault(name[0], object())


def note(name: str, is_held: bool = True) -> Any:
    return FakeMessage(name, is_held)


def taken(inbox: Inbox[ReceivedMessage]) -> str:
    message: Any = inbox.pop()
    return message.name if message else ""


async def test_first_in_first_out() -> None:
    inbox: Inbox[ReceivedMessage] = Inbox()
    inbox.put([note("a"), note("b")])
    inbox.put_first(note("again"))
    assert len(inbox) == 3
    assert [taken(inbox) for _ in range(4)] == ["again", "a", "b", ""]


async def test_messages_of_queues_given_away_are_left_out() -> None:
    inbox: Inbox[ReceivedMessage] = Inbox()
    inbox.put([note("a", False), note("b"), note("c", False)])
    assert [taken(inbox) for _ in range(2)] == ["b", ""]


async def test_one_waiter_is_woken_for_each_message() -> None:
    inbox: Inbox[ReceivedMessage] = Inbox()
    waiting = [asyncio.create_task(inbox.take()) for _ in range(3)]
    await asyncio.sleep(1)
    inbox.put([note("a"), note("b")])
    await asyncio.sleep(1)
    assert [task.done() for task in waiting] == [True, True, False]
    inbox.put_first(note("c"))
    assert await waiting[2]


async def test_the_message_of_a_cancelled_waiter_goes_to_the_next() -> None:
    inbox: Inbox[ReceivedMessage] = Inbox()
    first, second = (asyncio.create_task(inbox.take()) for _ in range(2))
    await asyncio.sleep(1)
    inbox.put([note("a")])
    first.cancel()
    await asyncio.sleep(1)
    assert first.cancelled()
    assert second.done()


async def test_a_waiter_cancelled_before_is_skipped() -> None:
    inbox: Inbox[ReceivedMessage] = Inbox()
    first, second = (asyncio.create_task(inbox.take()) for _ in range(2))
    await asyncio.sleep(1)
    first.cancel()
    await asyncio.sleep(1)
    inbox.put([note("a")])
    assert await second


async def test_a_closed_inbox_hands_out_nothing() -> None:
    inbox: Inbox[ReceivedMessage] = Inbox()
    inbox.put([note("a")])
    waiting = asyncio.create_task(inbox.take())
    await waiting
    waiting = asyncio.create_task(inbox.take())
    await asyncio.sleep(0)
    inbox.close()
    inbox.put([note("b")])
    inbox.put_first(note("c"))
    assert await waiting is None
    assert await inbox.take() is None
    assert len(inbox) == 0


async def test_one_queues_messages_can_be_taken_out() -> None:
    inbox: Inbox[ReceivedMessage] = Inbox()
    inbox.put([note("a1"), note("b1"), note("a2")])
    first: Any = inbox.pop()
    inbox.put_first(first)
    withdrawn: Any = inbox.withdraw(owner_of(first))
    assert [one.name for one in withdrawn] == ["a1", "a2"]
    assert inbox.withdraw(owner_of(first)) == []
    assert [taken(inbox) for _ in range(2)] == ["b1", ""]


async def test_a_failed_inbox_raises_its_error_in_all_waiters() -> None:
    inbox: Inbox[ReceivedMessage] = Inbox()
    waiting = [asyncio.create_task(inbox.take()) for _ in range(2)]
    await asyncio.sleep(1)
    inbox.fail(ValueError("no"))
    assert [str(await asyncio.gather(task, return_exceptions=True)) for task in waiting] == [
        "[ValueError('no')]"
    ] * 2
    inbox.put([note("a")])
    first: Any = await inbox.take()
    assert first.name == "a"
    inbox.close()
    assert await inbox.take() is None
