"""Messages to a user's function, and the outcome back."""

import asyncio
import contextlib
import functools
import threading
import time
from typing import Any

import pytest

from roquet.client import handling
from roquet.client.config import ConsumerConfig
from roquet.client.handling import Coroutines, Threads, Workers, workers
from roquet.client.inbox import Inbox
from roquet.client.outcome import TOLD
from roquet.client.received import Received, ReceivedMessage
from roquet.client.timelimit import Slot
from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.testing.clock import in_virtual_time, this_loop
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


def working(handler: Any, inbox: Inbox, count: int = 1, **settings: Any) -> Workers:
    return workers(handler, inbox, ConsumerConfig(concurrency=count, **settings))


async def run(handler: Any, inbox: Inbox, holder: Holder, total: int, count: int = 4) -> None:
    """Run until so many have ended."""
    work = asyncio.create_task(working(handler, inbox, count).run())
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
    assert isinstance(working(handler, Inbox()), Coroutines)


@pytest.mark.parametrize("handler", [fussy, lambda m: None, print], ids=range(3))
async def test_any_other_runs_in_threads(handler: Any) -> None:
    assert isinstance(working(handler, Inbox()), Threads)


async def test_what_cannot_be_called_is_no_handler() -> None:
    with pytest.raises(UsageError, match="not int"):
        working(5, Inbox())


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

    work = asyncio.create_task(working(handler, inbox, 2).run())
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

    work = asyncio.create_task(working(handler, inbox, 1).run())
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


class Clockless(Holder):
    """Also writes down the delays of what failed."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: list[int | None] = []

    def again(self, message: Received, delay_ms: int | None) -> None:
        super().again(message, delay_ms)
        self.delays.append(delay_ms)


@in_virtual_time
async def test_a_handler_that_hangs_is_ended_and_its_message_goes_back() -> None:
    holder = Clockless()
    inbox = filled(holder, 3)
    ended: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        if message.body == b"0":
            try:
                await asyncio.sleep(1e6)
            finally:
                ended.append(message.body)

    clock = this_loop().clock
    work = asyncio.create_task(working(handler, inbox, clock=clock).run())
    await asyncio.sleep(15 * 60 - 1)
    assert holder.done == []
    await asyncio.sleep(121)
    assert (ended, holder.failed, holder.delays) == ([b"0"], [b"0"], [10_000])
    assert holder.done == [b"1", b"2"]
    inbox.close()
    await work


@in_virtual_time
async def test_a_handler_that_swallows_its_end_works_on() -> None:
    holder = Clockless()
    inbox = filled(holder, 2)

    async def handler(message: ReceivedMessage) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(100)

    clock = this_loop().clock
    work = working(handler, inbox, clock=clock, handler_limit_ms=30_000)
    task = asyncio.create_task(work.run())
    await asyncio.sleep(90)
    assert holder.failed == [b"0", b"1"]
    assert not task.done()
    inbox.close()
    await task


async def test_a_thread_that_hangs_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    holder, gate = Clockless(), threading.Event()
    inbox = filled(holder, 3)

    def handler(message: ReceivedMessage) -> None:
        if message.body == b"0":
            gate.wait(20)

    task = asyncio.create_task(working(handler, inbox, handler_limit_ms=60).run())
    async with asyncio.timeout(20):
        while len(holder.done) < 2:  # noqa: ASYNC110 - threads, too
            await asyncio.sleep(0.01)
    assert (holder.failed, holder.delays) == ([b"0"], [10_000])
    gate.set()
    await asyncio.sleep(0.05)
    assert holder.done == [b"1", b"2"]
    assert "counts as a failure" in caplog.text
    inbox.close()
    await task


async def test_only_so_many_threads_that_hang_are_replaced(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handling, "HANGING_MAX", 2)
    holder, gate = Clockless(), threading.Event()
    inbox = filled(holder, 20)
    begun: list[bytes] = []

    def handler(message: ReceivedMessage) -> None:
        begun.append(message.body)
        gate.wait(20)

    work = working(handler, inbox, handler_limit_ms=30)
    task = asyncio.create_task(work.run())
    async with asyncio.timeout(20):
        while len(holder.failed) < 3:  # noqa: ASYNC110 - threads, too
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert begun == [b"0", b"1", b"2"]
    assert len(inbox) >= 20 - 3 - handling.AHEAD - 1  # nobody takes them only to hold them
    assert caplog.text.count("3 handlers hang") == 1
    gate.set()
    async with asyncio.timeout(20):
        while len(holder.done) < 17:  # noqa: ASYNC110 - threads, too
            await asyncio.sleep(0.01)
    assert len(holder.failed) == 3
    inbox.close()
    await task


@in_virtual_time
async def test_ordered_handlers_have_no_limit() -> None:
    holder = Clockless()
    inbox = filled(holder, 1)

    async def handler(message: ReceivedMessage) -> None:
        await asyncio.sleep(5_000)

    clock = this_loop().clock
    task = asyncio.create_task(working(handler, inbox, clock=clock, ordered=True).run())
    await asyncio.sleep(5_001)
    assert holder.done == [b"0"]
    inbox.close()
    await task


@pytest.mark.parametrize("is_async", [True, False], ids=["coroutines", "threads"])
async def test_what_a_handler_returns_has_no_meaning_and_that_is_said_once(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def plain(message: ReceivedMessage) -> object:
        return False if message.body == b"1" else "RECONSUME_LATER"

    async def coroutine(message: ReceivedMessage) -> object:
        return plain(message)

    holder = Holder()
    await run(coroutine if is_async else plain, filled(holder, 4), holder, 4)
    assert sorted(holder.done) == [b"0", b"2", b"3"]
    assert holder.failed == [b"1"]
    assert caplog.text.count("which has no meaning") == 1


@in_virtual_time
async def test_an_async_handler_that_returns_a_coroutine_has_not_handled() -> None:
    async def forgetful(message: ReceivedMessage) -> object:
        return quick(message)

    holder = Holder()
    await run(forgetful, filled(holder, 1), holder, 1)
    assert (holder.done, holder.failed) == ([], [b"0"])


async def test_what_threads_skip_is_not_taken_for_handled() -> None:
    holder = Holder()
    inbox = filled(holder, 8)

    def handler(message: ReceivedMessage) -> None:
        holder.is_held = False
        time.sleep(0.02)

    work = asyncio.create_task(working(handler, inbox).run())
    await asyncio.sleep(0.1)
    inbox.close()
    await work
    assert holder.done == [b"0"]


async def test_what_a_message_was_told_by_itself_is_not_overtaken_by_a_return() -> None:
    holder = Holder()
    inbox = filled(holder, 200)
    loop = asyncio.get_running_loop()

    def refuse(message: ReceivedMessage) -> object:
        loop.call_soon_threadsafe(message.fail)
        return TOLD

    await run(refuse, inbox, holder, 200)
    assert (len(holder.done), len(holder.failed)) == (0, 200)


async def test_a_thread_that_has_just_ended_is_not_taken_for_one_that_hangs() -> None:
    holder = Holder()
    inbox = filled(holder, 2)
    one, other = inbox.pop(), inbox.pop()
    assert one is not None
    threads = Threads(fussy, inbox, ConsumerConfig(concurrency=1))
    slot = Slot()
    slot.message = other
    threads._leave(slot, one)
    assert (slot.is_left, holder.failed) == (False, [])
