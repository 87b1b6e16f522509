"""Progress: how far groups are in queues, noted and saved."""

from struct import Struct
from typing import Final

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.log.message_log import MessageLog
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.rules.consumption.pull import is_in_page_cache
from roquet.wire.calls.bodies import QueueProgress
from roquet.wire.records.record import POSITION_AT

OFFSET_MAX: Final = 2**63 - 1

POSITION: Final = Struct(">q")


class BrokerProgress(BrokerComponent, frozen=True):
    """Progress of groups in queues: noted, saved and reported."""

    log: MessageLog
    tables: BrokerTables
    control: ControlPlane

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, *, is_replica: bool = False
    ) -> bool:
        """Note a group's progress, unless it is beyond the queue's end; whether it was noted.

        Nobody has read beyond the end: the queue was another one, or lost its tail. Messages that
        are stored up to that offset later would never come. A replica's queue may end before its
        master's: it notes every offset, and takes back what is beyond its end if it becomes the
        master.
        """
        if self.tables.offsets.get(group, topic, queue_id) == offset:
            return True
        if not is_replica and offset > self.log.store.bounds(topic, queue_id)[1]:
            return False
        self.tables.offsets.commit(group, topic, queue_id, offset)
        return True

    def save(self) -> None:
        """Save the progress of all groups at once: what an operator set survives a kill.

        The log is flushed first: progress that outlived the note of who was given a message would
        lose the message.
        """
        self.log.store.flush_log()
        self.tables.offsets.save()
        self.tables.ordered_pops.save()

    async def save_in_threads(self) -> None:
        """Save the progress of all groups, as `save` does, in threads."""
        await self.tables.offsets.saved(self.log.store.flush_log)
        await self.tables.ordered_pops.saved(self.log.store.flush_log)

    def of_queue(self, group: str, topic: str, number: int) -> QueueProgress:
        """The end of a queue, and a group's progress in it: handled and delivered messages."""
        store = self.log.store
        committed = max(self.tables.offsets.get(group, topic, number) or 0, 0)
        least, most = store.bounds(topic, number)
        last_ms = 0
        if least < committed <= most:
            last_ms = max(store.store_time_at(topic, number, committed - 1), 0)
        return QueueProgress(
            broker_offset=most,
            consumer_offset=committed,
            pull_offset=max(committed, self.control.statistics.pulled(topic, group, number)),
            last_timestamp=last_ms,
        )

    def has_unsubscribed(self, group: str, topic: str) -> bool:
        """Whether a group that is online subscribes to other topics, and no longer to this one."""
        members = self.tables.clients.consumers(group)
        return bool(members and members.subscriptions and topic not in members.subscriptions)

    def is_start_in_memory(self, topic: str, queue_id: int) -> bool:
        """Whether a queue's first message is likely to be in memory; True for an empty queue."""
        first = self.log.store.read(topic, queue_id, 0, count_max=1, bytes_max=1)
        if not first.parts:
            return True
        (position,) = POSITION.unpack_from(first.parts[0], POSITION_AT)
        return is_in_page_cache(
            position,
            self.log.store.end_position,
            self.log.memory,
            self.control.settings.config.memory_share,
        )
