"""Offset reset: an operator sets a group's offsets, and its members continue there.

Messages in flight do not count any more. Running handlers may end, so that no message is in two
handlers at a time. Java's members wait for 10 s in any case.
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
"""Longest wait for running handlers, as in Java."""


async def reset_offsets(
    wanted: Mapping[MessageQueue, int],
    assigned_queues: AssignedQueues,
    offsets: GroupOffsets,
    filters: Mapping[str, SubscriptionFilter],
    is_ours: Callable[[MessageQueue], bool],
) -> None:
    """Continue at other offsets in the queues that are assigned."""
    new_offsets = {
        q: offset for q, offset in wanted.items() if offset >= 0 and q in assigned_queues
    }
    dropped = {reader.queue: reader for reader in assigned_queues.drop(new_offsets)}
    try:
        # Before anything else: if this member dies or leaves now, the next owner starts there.
        await asyncio.gather(*(_commit(offsets, queue, new_offsets[queue]) for queue in dropped))
        await asyncio.gather(*map(_wait_for_reader, dropped.values()))
    finally:
        for queue, reader in dropped.items():
            message_filter = filters.get(queue.topic)
            if message_filter is not None and is_ours(queue):
                _assign_again(assigned_queues, reader, new_offsets[queue], message_filter)


def _assign_again(
    assigned_queues: AssignedQueues,
    former: QueueReader,
    offset: int,
    message_filter: SubscriptionFilter,
) -> None:
    log.info("%s continues at offset %d, reset by an operator", former.queue, offset)
    new = assigned_queues.assign(former.queue, offset, message_filter)
    if isinstance(former, OrderedReader) and isinstance(new, OrderedReader):
        new.start_after(former)
    if former.is_paused:
        new.pause()


async def _commit(offsets: GroupOffsets, queue: MessageQueue, offset: int) -> None:
    try:
        await offsets.commit(queue, offset)
    except RoquetError as error:  # committed with the next change
        log.warning("offset %d of %s is not saved yet: %s", offset, queue, error)


async def _wait_for_reader(reader: QueueReader) -> None:
    """Wait until no message of a reader is in a handler, up to a timeout."""
    if not isinstance(reader, OrderedReader):
        await reader.wait_for_handlers(HANDLERS_END_MS)
        return
    try:
        async with asyncio.timeout(HANDLERS_END_MS / 1000):
            await reader.wait_until_idle()
    except TimeoutError:
        log.warning("a handler is still at work on %s", reader.queue)
