"""Resetting: a group's offsets are set by an operator, and its members go on there.

What is in flight does not count any more. Handlers at work may end, so that a message is not in
two of them at one time; Java's members wait for 10 s, whatever their handlers do.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from roquet.client.reading.offsets import GroupOffsets
from roquet.client.reading.ordered_reader import OrderedReader
from roquet.client.reading.pull_request import SubscriptionFilter
from roquet.client.reading.queue_reader import QueueReader
from roquet.client.rebalance.assigned_queues import AssignedQueues
from roquet.log_records import logger
from roquet.model.errors import RoquetError
from roquet.model.queue import MessageQueue

log = logger(__name__)

HANDLERS_END_MS: Final = 10_000
"""How long handlers at work may take, as in Java."""


async def reset_offsets(
    wanted: Mapping[MessageQueue, int],
    assigned_queues: AssignedQueues,
    offsets: GroupOffsets,
    filters: Mapping[str, SubscriptionFilter],
    is_ours: Callable[[MessageQueue], bool],
) -> None:
    """Go on at other offsets in those of some queues that are held."""
    found = {q: offset for q, offset in wanted.items() if offset >= 0 and q in assigned_queues}
    dropped = {reader.queue: reader for reader in assigned_queues.drop(found)}
    try:
        # First of all: whoever takes the queues over, if we die or leave now, begins there.
        await asyncio.gather(*(_commit(offsets, queue, found[queue]) for queue in dropped))
        await asyncio.gather(*map(_ended, dropped.values()))
    finally:
        for queue, reader in dropped.items():
            message_filter = filters.get(queue.topic)
            if message_filter is not None and is_ours(queue):
                _take_again(assigned_queues, reader, found[queue], message_filter)


def _take_again(
    assigned_queues: AssignedQueues,
    former: QueueReader,
    offset: int,
    message_filter: SubscriptionFilter,
) -> None:
    log.info("%s goes on at offset %d, as an operator wants it", former.queue, offset)
    new = assigned_queues.hold(former.queue, offset, message_filter)
    if isinstance(former, OrderedReader) and isinstance(new, OrderedReader):
        new.begin_after(former)
    if former.is_paused:
        new.pause()


async def _commit(offsets: GroupOffsets, queue: MessageQueue, offset: int) -> None:
    try:
        await offsets.commit(queue, offset)
    except RoquetError as error:  # saved with the next progress
        log.warning("offset %d of %s is not saved yet: %s", offset, queue, error)


async def _ended(reader: QueueReader) -> None:
    """Return when no message of a reader is in a handler, or after a time."""
    if not isinstance(reader, OrderedReader):
        await reader.wait_for_handlers(HANDLERS_END_MS)
        return
    try:
        async with asyncio.timeout(HANDLERS_END_MS / 1000):
            await reader.ended()
    except TimeoutError:
        log.warning("a handler is still at work on %s", reader.queue)
