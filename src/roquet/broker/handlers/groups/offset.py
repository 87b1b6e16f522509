"""Offset: the progress of groups, and the bounds and times of queues."""

from roquet.broker.broker import BrokerComponent
from roquet.broker.coordination import GroupCoordination
from roquet.broker.ingest.destination import QUEUES_MAX
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.progress import OFFSET_MAX, BrokerProgress
from roquet.broker.refusals import invalid_parameter, no_group, no_topic
from roquet.broker.replication.replication import Replication
from roquet.broker.services.handover import QueueTakeover
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model.errors import CallRefused
from roquet.net.router import HandlerReply, Peer
from roquet.rules.consumption import pull as rules
from roquet.wire.call import Reply
from roquet.wire.calls import offset as calls
from roquet.wire.codes import ResponseCode


class OffsetHandler(BrokerComponent, frozen=True):
    """Reads and commits the progress of groups; bounds and times of queues."""

    log: MessageLog
    tables: BrokerTables
    coordination: GroupCoordination
    replication: Replication
    progress: BrokerProgress

    def query(self, call: calls.QueryOffset, peer: Peer) -> HandlerReply:
        """Return a group's offset in a queue; a member that takes it over may have to wait.

        Whoever asks only for what is stored takes nothing over: members do so before they start.
        """
        group, topic, queue_id = call.consumer_group, call.topic, call.queue_id
        if self.tables.former_readers.pending:
            self.tables.former_readers.tell(topic, group, queue_id, peer)
        bounds = self.log.store.bounds(topic, queue_id)
        if bounds != (0, 0) and call.set_zero_if_not_found is not False:
            taking = self.coordination.handover.taking(group, topic, queue_id, peer)
            if taking is not None and self.tables.offsets.get(group, topic, queue_id) != bounds[1]:
                return self._query_after(call, taking)
        return self._stored_progress(call)

    async def _query_after(
        self, call: calls.QueryOffset, taking: QueueTakeover
    ) -> calls.OffsetReply:
        await self.coordination.handover.wait(taking)
        return self._stored_progress(call)

    def _stored_progress(self, call: calls.QueryOffset) -> calls.OffsetReply:
        committed = self.tables.offsets.get(call.consumer_group, call.topic, call.queue_id)
        minimum, _ = self.log.store.bounds(call.topic, call.queue_id)
        offset = rules.queried_progress(
            committed,
            minimum,
            zero_if_absent=call.set_zero_if_not_found is not False,
            is_in_page_cache=committed is not None
            or self.progress.is_start_in_memory(call.topic, call.queue_id),
        )
        if offset is None:
            raise CallRefused(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
            )
        return self._reply(call.topic, offset)

    def _reply(self, topic: str, offset: int) -> calls.OffsetReply:
        return calls.OffsetReply(offset=offset, topic_id=self.tables.topics.ids.get(topic))

    def update(self, call: calls.UpdateOffset, peer: Peer) -> Reply:
        """Commit a group's offset in a queue."""
        group, topic = call.consumer_group, call.topic
        if self.tables.groups.get(group) is None:
            raise no_group(f"Group {group} not exist!")
        config = self.tables.topics.get(topic)
        if config is None:
            raise no_topic(f"Topic {topic} not exist!")
        if not 0 <= call.queue_id < QUEUES_MAX or not 0 <= call.commit_offset <= OFFSET_MAX:
            raise invalid_parameter(
                f"queue {call.queue_id}, offset {call.commit_offset} of topic {topic}: "
                f"neither can be negative, and no topic has more than {QUEUES_MAX} queues"
            )
        self.tables.topics.check_id(topic, call.topic_id)
        former, resets = self.tables.former_readers, self.tables.offset_resets
        may_be_late = former.pending and call.topic_id is None
        if may_be_late and former.is_late(topic, group, call.queue_id, peer):
            return Reply(
                remark="The topic was deleted and made anew: the offset is of the one before"
            )
        if resets.pending and resets.get(group, topic, call.queue_id) is not None:
            return Reply(remark="Offset has been previously reset")
        is_replica = not self.replication.role.current.is_master
        group_queue = (group, topic, call.queue_id)
        if not self.progress.commit(*group_queue, call.commit_offset, is_replica=is_replica):
            return Reply(remark=f"Offset {call.commit_offset} is beyond the queue's end: not noted")
        if call.queue_id < config.read_queue_nums:
            self.coordination.handover.committed(group, topic, call.queue_id, peer)
        return Reply()

    def maximum(self, call: calls.MaxOffset, _peer: Peer) -> calls.OffsetReply:
        """Return the offset of the next message of a queue."""
        return self._reply(call.topic, self.log.store.bounds(call.topic, call.queue_id)[1])

    def minimum(self, call: calls.MinOffset, _peer: Peer) -> calls.OffsetReply:
        """Return the offset of the first message of a queue."""
        return self._reply(call.topic, self.log.store.bounds(call.topic, call.queue_id)[0])

    def by_time(self, call: calls.OffsetByTime, _peer: Peer) -> calls.OffsetReply:
        """Return the offset of the first message stored at a time or later."""
        upper = (call.boundary_type or "").lower() == "upper"
        offset = self.log.store.offset_by_time(
            call.topic, call.queue_id, call.timestamp, upper=upper
        )
        return self._reply(call.topic, offset)

    def earliest_time(self, call: calls.EarliestTime, _peer: Peer) -> calls.TimeReply:
        """Return when the first message of a queue was stored, in ms."""
        return calls.TimeReply(timestamp=self.log.store.earliest_time(call.topic, call.queue_id))
