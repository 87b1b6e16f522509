"""Batches of messages pass through the handler pools, and are settled together."""

import asyncio
import gc
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
from tests.client.reading.test_handler_pool import RecordingOwner, filled

from roquet.client.config import ConsumerConfig
from roquet.client.reading.handler_pool import create_pool
from roquet.client.reading.inbox import Inbox
from roquet.client.reading.message import ReceivedMessage, retry_later, settle
from roquet.client.reading.message_batch import (
    BatchHandler,
    BatchInbox,
    MessageBatch,
    handler_of_batch,
    handler_of_one,
)
from roquet.testing.clock import this_loop

Messages = Sequence[ReceivedMessage]


def bodies(messages: Messages) -> list[int]:
    return [int(message.body) for message in messages]


def batches_of(inbox: Inbox[ReceivedMessage], size: int) -> BatchInbox[ReceivedMessage]:
    return BatchInbox(inbox, size, 200)


async def handled(
    handler: BatchHandler[ReceivedMessage],
    owner: RecordingOwner,
    total: int,
    size: int,
    **config: Any,
) -> None:
    """Let a pool handle messages of an owner until all are settled."""
    inbox = filled(owner, total)
    settings = ConsumerConfig(concurrency=1, **config)
    pool = create_pool(handler_of_batch(handler), batches_of(inbox, size), settings)
    work = asyncio.create_task(pool.run())
    async with asyncio.timeout(20):
        while len(owner.done) + len(owner.failed) < total:  # noqa: ASYNC110 - threads, too
            await asyncio.sleep(0.001)
    inbox.close()
    await work


async def taken(batches: BatchInbox[ReceivedMessage]) -> list[int]:
    batch = await batches.take()
    return [] if batch is None else bodies(batch.messages)


async def test_batches_are_full_while_enough_messages_wait() -> None:
    batches = batches_of(filled(RecordingOwner(), 7), 3)
    assert [await taken(batches) for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
    assert this_loop().clock.monotonic_ms() == 0


async def test_a_batch_waits_for_more_after_its_first_message() -> None:
    inbox: Inbox[ReceivedMessage] = Inbox()
    batches = batches_of(inbox, 3)
    taking = asyncio.create_task(taken(batches))
    await asyncio.sleep(5)
    inbox.put([filled(RecordingOwner(), 1).pop()])  # type: ignore[list-item]
    await asyncio.sleep(0.19)
    assert not taking.done()
    await asyncio.sleep(0.02)
    assert await taking == [0]


async def test_workers_collect_in_turn_so_that_batches_are_full() -> None:
    batches = batches_of(filled(RecordingOwner(), 5), 4)
    assert [*await asyncio.gather(taken(batches), taken(batches))] == [[0, 1, 2, 3], [4]]


async def test_a_closed_inbox_ends_a_batch_and_gives_no_more() -> None:
    inbox = filled(RecordingOwner(), 1)
    batches = batches_of(inbox, 3)
    taking = asyncio.create_task(taken(batches))
    await asyncio.sleep(0.1)
    inbox.close()
    assert await taking == [0]
    assert await batches.take() is None


async def test_a_cancelled_worker_puts_its_messages_back() -> None:
    inbox = filled(RecordingOwner(), 2)
    taking = asyncio.create_task(taken(batches_of(inbox, 3)))
    await asyncio.sleep(0.1)
    taking.cancel()
    await asyncio.wait([taking])
    assert await taken(batches_of(inbox, 2)) == [0, 1]


async def test_a_batch_that_is_put_back_comes_again_without_what_was_settled() -> None:
    owner = RecordingOwner()
    inbox = filled(owner, 3)
    batches = batches_of(inbox, 3)
    batch = await batches.take()
    assert batch is not None
    await batch.messages[1].ack()
    batches.put_first(batch)
    assert await taken(batches_of(inbox, 2)) == [0, 2]


@pytest.mark.virtual_time(False)
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_return_acknowledges_and_an_exception_fails_a_whole_batch(is_async: bool) -> None:
    owner = RecordingOwner()

    def plain(messages: Messages) -> None:
        if bodies(messages)[0] == 3:
            raise ValueError

    async def awaited(messages: Messages) -> None:
        plain(messages)

    await handled(awaited if is_async else plain, owner, 6, 3)
    assert (owner.done, owner.failed) == ([b"0", b"1", b"2"], [b"3", b"4", b"5"])


async def test_a_handler_tells_single_messages_apart() -> None:
    owner = RecordingOwner()

    async def handler(messages: Messages) -> None:
        await messages[1].nack(7_000)
        await messages[2].dead_letter()

    await handled(handler, owner, 4, 4)
    assert owner.done == [b"0", b"3"]
    assert owner.failed == [b"1", b"2"]
    assert owner.delays == [7_000, -1]


async def test_a_batch_has_the_time_limit_of_one_handler() -> None:
    owner = RecordingOwner()

    async def handler(_messages: Messages) -> None:
        await asyncio.sleep(3_600)

    await handled(handler, owner, 2, 2, handler_limit_ms=1_000, clock=this_loop().clock)
    assert owner.failed == [b"0", b"1"]


async def test_a_wrong_result_is_a_failure_of_all_and_ends_the_run() -> None:
    owner = RecordingOwner()

    async def coroutine(_messages: Messages) -> None:
        """Handle nothing: it is never awaited."""

    pool = create_pool(
        handler_of_batch(lambda messages: coroutine(messages)),
        batches_of(filled(owner, 2), 2),
        ConsumerConfig(concurrency=1),
    )
    with pytest.raises(Exception, match="make it an `async def`"):
        await pool.run()
    assert owner.failed == [b"0", b"1"]


async def test_messages_of_revoked_queues_do_not_hold_a_batch() -> None:
    owner = RecordingOwner()
    batch = MessageBatch([*iter(filled(owner, 2).pop, None)])
    assert batch.is_held
    owner.is_held = False
    assert not batch.is_held
    assert repr(batch).startswith("<2 messages, first <ReceivedMessage")


def test_a_batch_is_freed_with_its_last_reference() -> None:
    batch = MessageBatch([*iter(filled(RecordingOwner(), 2).pop, None)])
    settle(batch)
    freed = weakref.ref(batch.messages[0])
    gc.disable()
    try:
        del batch
        assert freed() is None
    finally:
        gc.enable()


async def test_an_operators_single_message_is_a_batch_of_its_own() -> None:
    seen: list[list[int]] = []
    message = filled(RecordingOwner(), 1).pop()
    assert message is not None
    one = handler_of_one(handler_of_batch(lambda messages: seen.append(bodies(messages))))
    one(message)
    assert seen == [[0]]


@pytest.mark.parametrize("is_done", [True, False])
def test_what_the_handler_does_not_get_fails_when_the_others_are_settled(is_done: bool) -> None:
    owner = RecordingOwner()
    messages = [*iter(filled(owner, 3).pop, None)]
    messages[1].undecodable = "ValueError"
    batch = MessageBatch(messages)
    batch.messages = [messages[0]]
    batch.failed = [(messages[1], ValueError()), (messages[2], TimeoutError())]
    if is_done:
        settle(batch)
    else:
        retry_later(batch, 500)
    assert (owner.done, owner.failed[not is_done]) == ([b"0"][: int(is_done)], b"1")
    assert owner.delays[-2:] == [-1, None]


async def test_what_the_handler_did_not_get_is_put_back_with_the_others() -> None:
    owner = RecordingOwner()
    inbox = filled(owner, 2)
    batches = batches_of(inbox, 2)
    batch = await batches.take()
    assert batch is not None
    first, second = batch.messages
    batch.leave_out(lambda message: 1 // (int(message.body) - 1))
    assert (batch.messages, [message for message, _ in batch.failed]) == ([first], [second])
    batches.put_first(batch)
    assert await taken(batches_of(inbox, 2)) == [0, 1]
    assert second.has_failed is None


def test_what_cannot_be_read_is_left_out_and_has_failed() -> None:
    messages = [*iter(filled(RecordingOwner(), 3).pop, None)]
    batch = MessageBatch(messages)

    def read(message: ReceivedMessage) -> None:
        if message.body == b"1":
            raise ValueError("no")

    assert batch.leave_out(read) is batch
    assert bodies(batch.messages) == [0, 2]
    ((failed, error),) = batch.failed
    assert (failed, str(error), failed.has_failed) == (messages[1], "no", True)
    only = MessageBatch([messages[1]])
    assert only.leave_out(read) is None
