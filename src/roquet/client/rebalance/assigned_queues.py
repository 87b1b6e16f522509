"""Assigned queues: read, paused, moved or reset to other offsets, committed and released."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from roquet.client.arguments import check_queue
from roquet.client.config import ConsumerConfig
from roquet.client.reading.offsets import GroupOffsets
from roquet.client.reading.ordered_reader import OrderedReader
from roquet.client.reading.pull_request import SubscriptionFilter
from roquet.client.reading.queue_reader import QueueReader, ReaderContext
from roquet.log_records import logger
from roquet.model.errors import RoquetError, UsageError
from roquet.model.queue import MessageQueue

log = logger(__name__)

HANDOVER_MS: Final = 800
"""Longest wait for running handlers before a queue goes to another member, which Roquet's brokers
let wait for 1 s."""

RESET_WAIT_MS: Final = 10_000
"""Longest wait for running handlers before a reset; Java's members wait for so long in any case."""


class AssignedQueues:
    """A consumer's queues, each with its reader."""

    def __init__(
        self, context: ReaderContext, offsets: GroupOffsets, config: ConsumerConfig
    ) -> None:
        self.readers: dict[MessageQueue, QueueReader] = {}
        self._context = context
        self.offsets = offsets
        self._config = config

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self.readers

    def reader(self, queue: MessageQueue) -> QueueReader:
        """The reader of a queue; UsageError when the queue is not assigned."""
        if (reader := self.readers.get(check_queue(queue))) is None:
            raise UsageError(
                f"{queue} is not assigned to this consumer: `assignment()` says what is"
            )
        return reader

    def assign(
        self,
        queue: MessageQueue,
        offset: int,
        message_filter: SubscriptionFilter,
        former: QueueReader | None = None,
    ) -> QueueReader:
        """Read a queue from an offset on; its former reader ends, by default the present one.

        The queue stays paused, and no ordered message is handed out before the former reader's.
        """
        if (present := self.readers.get(queue)) is not None:
            present.release()
        former = former or present
        kind = OrderedReader if self._config.ordered else QueueReader
        new = self.readers[queue] = kind(queue, offset, message_filter, self._context)
        new.topic_id = self.offsets.topic_ids.get(queue)
        new.on_recreated = self._restart_recreated
        if isinstance(former, OrderedReader) and isinstance(new, OrderedReader):
            new.start_after(former)
        if former is not None and former.is_paused:
            new.pause()
        return new

    def seek(self, queue: MessageQueue, offset: int, message_filter: SubscriptionFilter) -> None:
        """Continue at another offset; messages in flight do not count any more."""
        self.assign(self.reader(queue).queue, offset, message_filter)

    async def reset(
        self,
        offsets: Mapping[MessageQueue, int],
        filters: Mapping[str, SubscriptionFilter],
        may_read: Callable[[MessageQueue], bool],
    ) -> None:
        """Continue in assigned queues at the offsets that an operator has set.

        Messages in flight do not count any more. Running handlers may end, so that no message is in
        two handlers at a time.
        """
        new_offsets = {q: offset for q, offset in offsets.items() if offset >= 0 and q in self}
        dropped = self.drop(new_offsets)
        try:
            # Before anything else: if this member dies or leaves now, the next owner starts there.
            await asyncio.gather(*(self._commit_reset(r.queue, new_offsets) for r in dropped))
            await asyncio.gather(*map(_wait_for_handlers, dropped))
        finally:
            for reader in dropped:
                queue, message_filter = reader.queue, filters.get(reader.queue.topic)
                if message_filter is not None and may_read(queue):
                    offset = new_offsets[queue]
                    log.info("%s continues at offset %d, reset by an operator", queue, offset)
                    self.assign(queue, offset, message_filter, reader)

    async def _commit_reset(
        self, queue: MessageQueue, new_offsets: Mapping[MessageQueue, int]
    ) -> None:
        try:
            await self.offsets.commit(queue, new_offsets[queue])
        except RoquetError as error:  # committed with the next change
            log.warning("offset %d of %s is not saved yet: %s", new_offsets[queue], queue, error)

    async def _restart_recreated(self, reader: QueueReader) -> bool:
        """Read a topic that was deleted and created again from its first offset.

        Messages in flight do not count. Returns False when it is the same topic, or there is none.
        """
        queue = reader.queue
        first = await self.offsets.restart_offset(queue)
        if first is None or self.readers.get(queue) is not reader:
            return False
        log.warning(
            "topic %s was deleted and made anew: %s is read from offset %d on; the former one"
            " was read up to %d", queue.topic, queue, first, reader.window.next_offset,
        )  # fmt: skip
        self.assign(queue, first, reader.message_filter)
        return True

    def change(self, message_filter: SubscriptionFilter) -> None:
        """Change the filter of its topic."""
        for queue, reader in self.readers.items():
            if queue.topic == message_filter.topic:
                reader.change(message_filter)

    def drop(self, queues: Iterable[MessageQueue]) -> Sequence[QueueReader]:
        """Stop reading queues; return their readers."""
        dropped = [self.readers.pop(queue) for queue in queues if queue in self.readers]
        for reader in dropped:
            reader.release()
        return dropped

    async def release(self, queues: Iterable[MessageQueue], *, save: bool) -> None:
        """Stop reading queues, and commit their offsets if asked to."""
        dropped = self.drop(queues)
        if save:
            await self.save_last(dropped)

    async def hand_over(self, readers: Iterable[QueueReader]) -> None:
        """Commit the offsets of queues for their next owners, once running handlers have ended.

        The next owner starts after what is finished by then. Handlers that take longer are not
        awaited.
        """
        released = list(readers)
        await asyncio.gather(*(reader.wait_for_handlers(HANDOVER_MS) for reader in released))
        await self.save_last(released)

    async def save_last(self, readers: Iterable[QueueReader]) -> None:
        """Commit the offsets of dropped queues."""
        await asyncio.gather(*map(self._save_last, readers))

    async def _save_last(self, reader: QueueReader) -> None:
        try:
            await self.offsets.commit(reader.queue, reader.window.committable)
        except RoquetError as error:
            log.warning("progress of %s is not saved, it comes again: %s", reader.queue, error)

    async def save(self) -> None:
        """Commit the offset of each queue whose offset has changed."""
        for reader in list(self.readers.values()):
            reader.observe_progress()
            progress = reader.window.committable
            if reader.is_held and progress != reader.saved:
                try:
                    await self.offsets.commit_nowait(reader.queue, progress)
                except RoquetError as error:
                    log.debug("progress of %s will be saved later: %s", reader.queue, error)
                    continue
                reader.saved = progress
        self.offsets.flush()

    async def settled(self, timeout_ms: int) -> None:
        """Wait until failed messages are settled, up to a timeout."""
        leaving = [task for reader in self.readers.values() for task in reader.settling]
        if leaving:
            await asyncio.wait(leaving, timeout=timeout_ms / 1000)

    async def lag(self, queues: Iterable[MessageQueue]) -> Mapping[MessageQueue, int]:
        """Unhandled messages of each queue."""
        wanted = list(queues)
        ends = await asyncio.gather(*map(self.offsets.max_offset, wanted), return_exceptions=True)
        lags: dict[MessageQueue, int] = {}
        for queue, end in zip(wanted, ends, strict=True):
            reader = self.readers.get(queue)
            if isinstance(end, RoquetError):
                raise end
            if isinstance(end, int) and reader is not None:
                lags[queue] = max(end - reader.window.committable, 0)
        return lags


async def _wait_for_handlers(reader: QueueReader) -> None:
    """Wait until no message of a reader is in a handler, up to a timeout."""
    if not isinstance(reader, OrderedReader):
        await reader.wait_for_handlers(RESET_WAIT_MS)
        return
    try:
        async with asyncio.timeout(RESET_WAIT_MS / 1000):
            await reader.wait_until_idle()
    except TimeoutError:
        log.warning("a handler is still at work on %s", reader.queue)
