"""Handlers are called with messages, and their results settle them."""

import asyncio
import contextlib
import contextvars
import functools
import threading
import time
from typing import Any

import pytest

from roquet.client.config import ConsumerConfig
from roquet.client.reading import handler_pool
from roquet.client.reading.handler_pool import (
    CoroutinePool,
    HandlerPool,
    MessageHandler,
    ThreadPool,
    WorkerSlot,
    create_pool,
    watch_timeouts,
)
from roquet.client.reading.handler_result import ALREADY_SETTLED
from roquet.client.reading.inbox import Inbox
from roquet.client.reading.message import InboundMessage, ReceivedMessage, retry_later, settle
from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.records import record

pytestmark = pytest.mark.virtual_time(False)

HOST = bytes((10, 0, 0, 1, 0, 0, 42, 159))


class RecordingOwner:
    """Records how messages were settled."""

    def __init__(self) -> None:
        self.is_held = True
        self.done: list[bytes] = []
        self.failed: list[bytes] = []
        self.delays: list[int | None] = []

    def finish(self, message: InboundMessage) -> None:
        self.done.append(message.body)

    def retry(self, message: InboundMessage, delay_ms: int | None) -> None:
        self.failed.append(message.body)
        self.delays.append(delay_ms)


def filled(owner: RecordingOwner, count: int) -> Inbox[ReceivedMessage]:
    inbox: Inbox[ReceivedMessage] = Inbox()
    for n in range(count):
        raw = record.pack(0, 0, n, 0, 0, 1, HOST, 2, HOST, 0, 0, b"%d" % n, b"t", b"")
        queue = MessageQueue("t", "a", 0)
        inbox.put([ReceivedMessage(queue, record.decode(raw), owner)])
    return inbox


def working(
    handler: MessageHandler[ReceivedMessage],
    inbox: Inbox[ReceivedMessage],
    count: int = 1,
    **settings: Any,
) -> HandlerPool[ReceivedMessage]:
    return create_pool(handler, inbox, ConsumerConfig(concurrency=count, **settings))


async def run(
    handler: MessageHandler[ReceivedMessage],
    inbox: Inbox[ReceivedMessage],
    owner: RecordingOwner,
    total: int,
    count: int = 4,
) -> None:
    """Run until a number of messages has ended."""
    work = asyncio.create_task(working(handler, inbox, count).run())
    async with asyncio.timeout(20):
        while len(owner.done) + len(owner.failed) < total:  # noqa: ASYNC110 - threads, too
            await asyncio.sleep(0.001)
        inbox.close()
        await work


async def quick(message: ReceivedMessage) -> None:
    """Handle anything."""


def fussy(message: ReceivedMessage) -> None:
    if int(message.body) % 2:
        raise ValueError("odd")


async def fussy_async(message: ReceivedMessage) -> None:
    fussy(message)


class AsyncCallable:
    """An object whose call is async."""

    async def __call__(self, message: ReceivedMessage) -> None:
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "handler", [quick, AsyncCallable(), functools.partial(quick)], ids=range(3)
)
@in_virtual_time
async def test_an_async_handler_runs_on_the_loop(handler: MessageHandler[ReceivedMessage]) -> None:
    assert isinstance(working(handler, Inbox()), CoroutinePool)


@pytest.mark.parametrize("handler", [fussy, lambda m: None, print], ids=range(3))
async def test_a_plain_handler_runs_in_threads(handler: MessageHandler[ReceivedMessage]) -> None:
    assert isinstance(working(handler, Inbox()), ThreadPool)


@pytest.mark.parametrize("handler", [fussy, fussy_async], ids=["threads", "coroutines"])
async def test_outcomes_decide(
    handler: MessageHandler[ReceivedMessage], caplog: pytest.LogCaptureFixture
) -> None:
    owner = RecordingOwner()
    await run(handler, filled(owner, 200), owner, 200)
    assert sorted(map(int, owner.done)) == list(range(0, 200, 2))
    assert sorted(map(int, owner.failed)) == list(range(1, 200, 2))
    assert "ValueError: odd" in caplog.text


@in_virtual_time
async def test_concurrency_limits_the_coroutines() -> None:
    owner, at_work, most = RecordingOwner(), 0, 0

    async def handler(message: ReceivedMessage) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(1)
        at_work -= 1

    await run(handler, filled(owner, 12), owner, 12, count=4)
    assert most == 4


async def test_concurrency_limits_the_threads() -> None:
    owner, lock, at_work, most = RecordingOwner(), threading.Lock(), 0, 0

    def handler(message: ReceivedMessage) -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.02)
        with lock:
            at_work -= 1

    await run(handler, filled(owner, 12), owner, 12, count=4)
    assert most == 4


@in_virtual_time
async def test_handlers_that_never_wait_leave_others_their_turn() -> None:
    owner = RecordingOwner()
    inbox = filled(owner, 1_000)
    seen: list[int] = []

    async def look() -> None:
        while len(owner.done) < 1_000:
            seen.append(len(owner.done))
            await asyncio.sleep(0)

    await asyncio.gather(look(), run(quick, inbox, owner, 1_000, count=1))
    assert len(seen) > 10


@in_virtual_time
async def test_the_message_of_a_cancelled_handler_goes_back() -> None:
    owner = RecordingOwner()
    inbox = filled(owner, 1)

    async def handler(message: ReceivedMessage) -> None:
        await asyncio.sleep(3600)

    work = asyncio.create_task(working(handler, inbox, 2).run())
    await asyncio.sleep(1)
    assert len(inbox) == 0
    work.cancel()
    await asyncio.wait([work])
    assert (len(inbox), owner.done, owner.failed) == (1, [], [])


async def test_a_coroutine_by_mistake_is_no_success(caplog: pytest.LogCaptureFixture) -> None:
    owner = RecordingOwner()
    with pytest.raises(UsageError, match="make it an `async def`"):
        await working(lambda message: quick(message), filled(owner, 1)).run()
    assert (owner.done, owner.failed) == ([], [b"0"])
    assert "make it an `async def`" in caplog.text


async def test_a_coroutine_by_mistake_ends_the_run_before_the_messages_that_wait() -> None:
    owner = RecordingOwner()
    inbox = filled(owner, 1_000)
    with pytest.raises(UsageError, match="make it an `async def`"):
        await working(lambda message: quick(message), inbox).run()
    assert len(inbox) > 900


async def test_leaving_the_program_in_a_thread_is_a_failure_too() -> None:
    owner = RecordingOwner()

    def handler(message: ReceivedMessage) -> None:
        raise SystemExit(1)

    await run(handler, filled(owner, 1), owner, 1)
    assert owner.failed == [b"0"]


async def test_threads_skip_messages_of_revoked_queues() -> None:
    owner = RecordingOwner()
    calls: list[bytes] = []
    inbox = filled(owner, 8)

    def handler(message: ReceivedMessage) -> None:
        calls.append(message.body)
        owner.is_held = False
        time.sleep(0.05)

    work = asyncio.create_task(working(handler, inbox, 1).run())
    await asyncio.sleep(0.2)
    inbox.close()
    await work
    assert calls == [b"0"]


@in_virtual_time
async def test_a_handler_whose_own_task_was_cancelled_has_failed() -> None:
    owner = RecordingOwner()

    async def handler(message: ReceivedMessage) -> None:
        inner = asyncio.create_task(asyncio.sleep(3600))
        inner.cancel()
        await inner

    await run(handler, filled(owner, 3), owner, 3)
    assert len(owner.failed) == 3


@in_virtual_time
async def test_a_handler_that_hangs_is_ended_and_its_message_goes_back() -> None:
    owner = RecordingOwner()
    inbox = filled(owner, 3)
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
    assert owner.done == []
    await asyncio.sleep(121)
    assert (ended, owner.failed, owner.delays) == ([b"0"], [b"0"], [10_000])
    assert owner.done == [b"1", b"2"]
    inbox.close()
    await work


@in_virtual_time
async def test_a_handler_that_swallows_its_end_works_on() -> None:
    owner = RecordingOwner()
    inbox = filled(owner, 2)

    async def handler(message: ReceivedMessage) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(100)

    clock = this_loop().clock
    work = working(handler, inbox, clock=clock, handler_limit_ms=30_000)
    task = asyncio.create_task(work.run())
    await asyncio.sleep(90)
    assert owner.failed == [b"0", b"1"]
    assert not task.done()
    inbox.close()
    await task


async def test_a_thread_that_hangs_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    owner, gate = RecordingOwner(), threading.Event()
    inbox = filled(owner, 3)

    def handler(message: ReceivedMessage) -> None:
        if message.body == b"0":
            gate.wait(20)

    task = asyncio.create_task(working(handler, inbox, handler_limit_ms=60).run())
    async with asyncio.timeout(20):
        while len(owner.done) < 2:  # noqa: ASYNC110 - threads, too
            await asyncio.sleep(0.01)
    assert (owner.failed, owner.delays) == ([b"0"], [10_000])
    gate.set()
    await asyncio.sleep(0.05)
    assert owner.done == [b"1", b"2"]
    assert "counts as a failure" in caplog.text
    inbox.close()
    await task


async def test_the_number_of_replaced_threads_is_limited(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler_pool, "HUNG_THREADS_MAX", 2)
    owner, gate = RecordingOwner(), threading.Event()
    inbox = filled(owner, 20)
    begun: list[bytes] = []

    def handler(message: ReceivedMessage) -> None:
        begun.append(message.body)
        gate.wait(20)

    work = working(handler, inbox, handler_limit_ms=30)
    task = asyncio.create_task(work.run())
    async with asyncio.timeout(20):
        while len(owner.failed) < 3:  # noqa: ASYNC110 - threads, too
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert begun == [b"0", b"1", b"2"]
    assert (
        len(inbox) >= 20 - 3 - handler_pool.QUEUED_PER_THREAD - 1
    )  # nobody takes them only to hold them
    assert caplog.text.count("3 handlers hang") == 1
    gate.set()
    async with asyncio.timeout(20):
        while len(owner.done) < 17:  # noqa: ASYNC110 - threads, too
            await asyncio.sleep(0.01)
    assert len(owner.failed) == 3
    inbox.close()
    await task


@in_virtual_time
async def test_ordered_handlers_have_no_limit() -> None:
    owner = RecordingOwner()
    inbox = filled(owner, 1)

    async def handler(message: ReceivedMessage) -> None:
        await asyncio.sleep(5_000)

    clock = this_loop().clock
    task = asyncio.create_task(working(handler, inbox, clock=clock, ordered=True).run())
    await asyncio.sleep(5_001)
    assert owner.done == [b"0"]
    inbox.close()
    await task


@pytest.mark.parametrize("is_async", [True, False], ids=["coroutines", "threads"])
async def test_a_returned_value_is_ignored_and_logged_once(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def plain(message: ReceivedMessage) -> object:
        return False if message.body == b"1" else "RECONSUME_LATER"

    async def coroutine(message: ReceivedMessage) -> object:
        return plain(message)

    owner = RecordingOwner()
    await run(coroutine if is_async else plain, filled(owner, 4), owner, 4)
    assert sorted(owner.done) == [b"0", b"2", b"3"]
    assert owner.failed == [b"1"]
    assert caplog.text.count("which has no meaning") == 1


@in_virtual_time
async def test_an_async_handler_that_returns_a_coroutine_has_not_handled() -> None:
    async def forgetful(message: ReceivedMessage) -> object:
        return quick(message)

    owner = RecordingOwner()
    with pytest.raises(UsageError, match="returned a coroutine"):
        await working(forgetful, filled(owner, 1)).run()
    assert (owner.done, owner.failed) == ([], [b"0"])


async def test_messages_that_threads_skip_are_not_counted_as_handled() -> None:
    owner = RecordingOwner()
    inbox = filled(owner, 8)

    def handler(message: ReceivedMessage) -> None:
        owner.is_held = False
        time.sleep(0.02)

    work = asyncio.create_task(working(handler, inbox).run())
    await asyncio.sleep(0.1)
    inbox.close()
    await work
    assert owner.done == [b"0"]


async def test_a_message_settled_by_its_own_method_ignores_the_return() -> None:
    owner = RecordingOwner()
    inbox = filled(owner, 200)
    loop = asyncio.get_running_loop()

    def refuse(message: ReceivedMessage) -> object:
        loop.call_soon_threadsafe(retry_later, message)
        return ALREADY_SETTLED

    await run(refuse, inbox, owner, 200)
    assert (len(owner.done), len(owner.failed)) == (0, 200)


async def test_what_a_thread_has_settled_goes_before_its_exception() -> None:
    owner = RecordingOwner()
    inbox = filled(owner, 200)
    loop = asyncio.get_running_loop()

    def acknowledge_and_fail(message: ReceivedMessage) -> None:
        loop.call_soon_threadsafe(settle, message)
        raise ValueError("after its work")

    await run(acknowledge_and_fail, inbox, owner, 200)
    assert (len(owner.done), len(owner.failed)) == (200, 0)


async def test_a_thread_that_has_just_ended_is_not_taken_for_one_that_hangs() -> None:
    owner = RecordingOwner()
    inbox = filled(owner, 2)
    one, other = inbox.pop(), inbox.pop()
    assert one is not None
    threads = ThreadPool(fussy, inbox, ConsumerConfig(concurrency=1))
    slot = WorkerSlot()
    slot.message = other
    threads.time_out(slot, one)
    assert (slot.is_left, owner.failed) == (False, [])


WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")


@pytest.mark.parametrize("kind", ["async", "suspended", "failing", "plain", "plain and failing"])
async def test_no_message_sees_the_context_variables_of_another(kind: str) -> None:
    seen: list[str] = []

    def plain(message: ReceivedMessage) -> None:
        seen.append(WHO.get())
        WHO.set(f"handler of {message.body!r}")
        if "failing" in kind:
            raise ValueError("odd")

    async def handler(message: ReceivedMessage) -> None:
        await asyncio.sleep(0 if kind == "suspended" else 0.001)
        plain(message)
        await asyncio.sleep(0)
        assert WHO.get() == f"handler of {message.body!r}"

    owner = RecordingOwner()
    WHO.set("main")
    await run(plain if "plain" in kind else handler, filled(owner, 9), owner, 9, count=2)
    assert seen == ["main"] * 9
    assert len(owner.failed if "failing" in kind else owner.done) == 9
    assert WHO.get() == "main"


@in_virtual_time
async def test_a_handler_that_hangs_after_one_that_set_a_variable_is_cancelled() -> None:
    async def handler(message: ReceivedMessage) -> None:
        if message.body == b"0":
            WHO.set("first")
        else:
            await asyncio.sleep(3600)

    owner = RecordingOwner()
    inbox = filled(owner, 2)
    pool = working(handler, inbox, handler_limit_ms=1_000, clock=this_loop().clock)
    work = asyncio.create_task(pool.run())
    await asyncio.sleep(10)
    assert (owner.done, owner.failed) == ([b"0"], [b"1"])
    inbox.close()
    await work


def at(message: object) -> WorkerSlot:
    slot = WorkerSlot()
    slot.message = message  # type: ignore[assignment]
    return slot


def test_a_worker_is_late_when_it_is_seen_at_one_message_for_too_long() -> None:
    slot = at("a")

    def looks(*times_ms: int) -> list[Any]:
        return [slot.late(ms, 100) for ms in times_ms]

    assert looks(0, 99, 100) == [None, None, "a"]
    slot.message = "b"  # type: ignore[assignment]
    assert looks(150, 249, 250) == [None, None, "b"]
    slot.message = None
    assert slot.late(10_000, 100) is None


@in_virtual_time
async def test_a_timeout_is_noticed_within_a_fifteenth_of_the_limit() -> None:
    reported: list[tuple[Any, int]] = []
    clock = this_loop().clock
    slot, idle = at("a"), WorkerSlot()

    def late(who: WorkerSlot, message: Any) -> None:
        reported.append((message, clock.monotonic_ms()))
        who.is_left = True

    config = ConsumerConfig(clock=clock, handler_limit_ms=15_000)
    watching = asyncio.create_task(watch_timeouts([slot, idle], late, config))
    await asyncio.sleep(100)
    watching.cancel()
    assert reported == [("a", 16_000)]


@in_virtual_time
async def test_ordered_workers_are_never_late() -> None:
    late: list[object] = []
    await watch_timeouts([at("a")], lambda *args: late.append(args), ConsumerConfig(ordered=True))
    assert (late, this_loop().time()) == ([], 0), "it ends at once"
