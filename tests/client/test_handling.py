"""Messages to a user's function, and the outcome back."""

import asyncio
import functools
import threading
import time
from typing import Any

import pytest

from roquet.client.handling import Coroutines, Threads, workers
from roquet.client.inbox import Inbox
from roquet.client.received import Received, ReceivedMessage
from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.testing.clock import in_virtual_time
from roquet.wire import record

HOST = bytes((10, 0, 0, 1, 0, 0, 42, 159))


class Holder:
    """Writes down how messages went."""

    def __init__(self) -> None:
        self.is_held = True
        self.done: list[bytes] = []
        self.failed: list[bytes] = []

    def finish(self, message: Received) -> None:
        self.done.append(message.body)

    def again(self, message: Received, delay_ms: int | None) -> None:
        self.failed.append(message.body)


def filled(holder: Holder, count: int) -> Inbox:
    inbox = Inbox()
    for n in range(count):
        raw = record.pack(0, 0, n, 0, 0, 1, HOST, 2, HOST, 0, 0, b"%d" % n, b"t", b"")
        queue = MessageQueue("t", "a", 0)
        inbox.put([ReceivedMessage(queue, record.decode(raw), holder)])
    return inbox


async def run(handler: Any, inbox: Inbox, holder: Holder, total: int, count: int = 4) -> None:
    """Run until so many have ended."""
    work = asyncio.create_task(workers(handler, inbox, count).run())
    async with asyncio.timeout(20):
        while len(holder.done) + len(holder.failed) < total:  # noqa: ASYNC110 - threads, too
            await asyncio.sleep(0.001)
        inbox.close()
        await work


async def quick(message: ReceivedMessage) -> None:
    """Handles anything."""


def fussy(message: ReceivedMessage) -> None:
    if int(message.body) % 2:
        raise ValueError("odd")


async def fussy_async(message: ReceivedMessage) -> None:
    fussy(message)


class Callee:
    """An object whose call is async."""

    async def __call__(self, message: ReceivedMessage) -> None:
        await asyncio.sleep(0)


@pytest.mark.parametrize("handler", [quick, Callee(), functools.partial(quick)], ids=range(3))
@in_virtual_time
async def test_an_async_handler_runs_on_the_loop(handler: Any) -> None:
    assert isinstance(workers(handler, Inbox(), 1), Coroutines)


@pytest.mark.parametrize("handler", [fussy, lambda m: None, print], ids=range(3))
async def test_any_other_runs_in_threads(handler: Any) -> None:
    assert isinstance(workers(handler, Inbox(), 1), Threads)


async def test_what_cannot_be_called_is_no_handler() -> None:
    with pytest.raises(UsageError, match="not int"):
        workers(5, Inbox(), 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("handler", [fussy, fussy_async], ids=["threads", "coroutines"])
async def test_the_outcome_decides(handler: Any, caplog: pytest.LogCaptureFixture) -> None:
    holder = Holder()
    await run(handler, filled(holder, 200), holder, 200)
    assert sorted(map(int, holder.done)) == list(range(0, 200, 2))
    assert sorted(map(int, holder.failed)) == list(range(1, 200, 2))
    assert "ValueError: odd" in caplog.text


@in_virtual_time
async def test_so_many_coroutines_work_at_one_time() -> None:
    holder, at_work, most = Holder(), 0, 0

    async def handler(message: ReceivedMessage) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(1)
        at_work -= 1

    await run(handler, filled(holder, 12), holder, 12, count=4)
    assert most == 4


async def test_so_many_threads_work_at_one_time() -> None:
    holder, lock, at_work, most = Holder(), threading.Lock(), 0, 0

    def handler(message: ReceivedMessage) -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.02)
        with lock:
            at_work -= 1

    await run(handler, filled(holder, 12), holder, 12, count=4)
    assert most == 4


@in_virtual_time
async def test_handlers_that_never_wait_leave_others_their_turn() -> None:
    holder = Holder()
    inbox = filled(holder, 1_000)
    seen: list[int] = []

    async def look() -> None:
        while len(holder.done) < 1_000:
            seen.append(len(holder.done))
            await asyncio.sleep(0)

    await asyncio.gather(look(), run(quick, inbox, holder, 1_000, count=1))
    assert len(seen) > 10


@in_virtual_time
async def test_a_cancelled_handlers_message_goes_back() -> None:
    holder = Holder()
    inbox = filled(holder, 1)

    async def handler(message: ReceivedMessage) -> None:
        await asyncio.sleep(3600)

    work = asyncio.create_task(workers(handler, inbox, 2).run())
    await asyncio.sleep(1)
    assert len(inbox) == 0
    work.cancel()
    await asyncio.wait([work])
    assert (len(inbox), holder.done, holder.failed) == (1, [], [])


async def test_a_coroutine_by_mistake_is_not_taken_for_success(
    caplog: pytest.LogCaptureFixture,
) -> None:
    holder = Holder()
    await run(lambda message: quick(message), filled(holder, 1), holder, 1)
    assert (holder.done, holder.failed) == ([], [b"0"])
    assert "make it an `async def`" in caplog.text


async def test_leaving_the_program_in_a_thread_is_a_failure_too() -> None:
    holder = Holder()

    def handler(message: ReceivedMessage) -> None:
        raise SystemExit(1)

    await run(handler, filled(holder, 1), holder, 1)
    assert holder.failed == [b"0"]


async def test_threads_skip_what_was_given_away_meanwhile() -> None:
    holder = Holder()
    calls: list[bytes] = []
    inbox = filled(holder, 8)

    def handler(message: ReceivedMessage) -> None:
        calls.append(message.body)
        holder.is_held = False
        time.sleep(0.05)

    work = asyncio.create_task(workers(handler, inbox, 1).run())
    await asyncio.sleep(0.2)
    inbox.close()
    await work
    assert calls == [b"0"]


@in_virtual_time
async def test_a_handler_whose_own_task_was_cancelled_has_failed() -> None:
    holder = Holder()

    async def handler(message: ReceivedMessage) -> None:
        inner = asyncio.create_task(asyncio.sleep(3600))
        inner.cancel()
        await inner

    await run(handler, filled(holder, 3), holder, 3)
    assert len(holder.failed) == 3
