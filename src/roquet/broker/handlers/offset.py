"""Offsets: a group's progress, and what a queue holds."""

from struct import Struct
from typing import Final

from roquet.broker.broker import Broker
from roquet.broker.ingest.destination import QUEUES_MAX
from roquet.broker.services.handover import QueueTakeover
from roquet.model.errors import CallRefused
from roquet.net.router import HandlerReply, Peer
from roquet.rules.consumption import initial_offset as rules
from roquet.wire.call import Reply
from roquet.wire.calls import offset as calls
from roquet.wire.codes import ResponseCode
from roquet.wire.records.record import POSITION_AT

OFFSET_MAX: Final = 2**63 - 1
POSITION: Final = Struct(">q")


def query(broker: Broker, call: calls.QueryOffset, peer: Peer) -> HandlerReply:
    """A group's progress in one queue; a member that takes it from another one may have to wait."""
    group, topic, queue_id = call.consumer_group, call.topic, call.queue_id
    if broker.former_readers.pending:
        broker.former_readers.tell(topic, group, queue_id, peer)
    bounds = broker.store.bounds(topic, queue_id)
    if bounds != (0, 0):
        taking = broker.handover.taking(group, topic, queue_id, peer)
        if taking is not None and broker.offsets.get(group, topic, queue_id) != bounds[1]:
            return _query_after(broker, call, taking)
    return _progress(broker, call)


async def _query_after(
    broker: Broker, call: calls.QueryOffset, taking: QueueTakeover
) -> calls.OffsetReply:
    await broker.handover.wait(taking)
    return _progress(broker, call)


def _progress(broker: Broker, call: calls.QueryOffset) -> calls.OffsetReply:
    committed = broker.offsets.get(call.consumer_group, call.topic, call.queue_id)
    minimum, _ = broker.store.bounds(call.topic, call.queue_id)
    found = rules.queried_progress(
        committed,
        minimum,
        zero_if_absent=call.set_zero_if_not_found is not False,
        is_in_page_cache=committed is not None
        or is_in_page_cache(broker, call.topic, call.queue_id),
    )
    if found is None:
        raise CallRefused(
            ResponseCode.QUERY_NOT_FOUND,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )
    return _reply(broker, call.topic, found)


def _reply(broker: Broker, topic: str, offset: int) -> calls.OffsetReply:
    return calls.OffsetReply(offset=offset, topic_id=broker.topics.ids.get(topic))


def update(broker: Broker, call: calls.UpdateOffset, peer: Peer) -> Reply:
    """Notes a group's progress in one queue."""
    group, topic = call.consumer_group, call.topic
    if broker.groups.get(group) is None:
        raise CallRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
    config = broker.topics.get(topic)
    if config is None:
        raise CallRefused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
    if not 0 <= call.queue_id < QUEUES_MAX or not 0 <= call.commit_offset <= OFFSET_MAX:
        raise CallRefused(
            ResponseCode.INVALID_PARAMETER,
            f"queue {call.queue_id}, offset {call.commit_offset} of topic {topic}: "
            f"neither can be negative, and no topic has more than {QUEUES_MAX} queues",
        )
    broker.check_topic_id(topic, call.topic_id)
    former = broker.former_readers
    if (
        former.pending
        and call.topic_id is None
        and former.is_late(topic, group, call.queue_id, peer)
    ):
        return Reply(remark="The topic was deleted and made anew: the offset is of the one before")
    if broker.resets.pending and broker.resets.get(group, topic, call.queue_id) is not None:
        return Reply(remark="Offset has been previously reset")
    if not broker.commit(group, topic, call.queue_id, call.commit_offset):
        return Reply(remark=f"Offset {call.commit_offset} is beyond the queue's end: not noted")
    if call.queue_id < config.read_queue_nums:
        broker.handover.committed(group, topic, call.queue_id, peer)
    return Reply()


def maximum(broker: Broker, call: calls.MaxOffset, _peer: Peer) -> calls.OffsetReply:
    """The offset that the next message of a queue will get."""
    return _reply(broker, call.topic, broker.store.bounds(call.topic, call.queue_id)[1])


def minimum(broker: Broker, call: calls.MinOffset, _peer: Peer) -> calls.OffsetReply:
    """The offset of the first message that a queue still holds."""
    return _reply(broker, call.topic, broker.store.bounds(call.topic, call.queue_id)[0])


def by_time(broker: Broker, call: calls.OffsetByTime, _peer: Peer) -> calls.OffsetReply:
    """The offset of the first message stored at a time or later."""
    upper = (call.boundary_type or "").lower() == "upper"
    found = broker.store.offset_by_time(call.topic, call.queue_id, call.timestamp, upper=upper)
    return _reply(broker, call.topic, found)


def earliest_time(broker: Broker, call: calls.EarliestTime, _peer: Peer) -> calls.TimeReply:
    """When the first message that a queue still holds was stored."""
    return calls.TimeReply(timestamp=broker.store.earliest_time(call.topic, call.queue_id))


def is_in_page_cache(broker: Broker, topic: str, queue_id: int) -> bool:
    """Whether the queue's first message is likely to be in memory; so is one yet to come."""
    first = broker.store.read(topic, queue_id, 0, count_max=1, bytes_max=1)
    if not first.parts:
        return True
    (position,) = POSITION.unpack_from(first.parts[0], POSITION_AT)
    return rules.is_in_page_cache(
        position, broker.store.end_position, broker.memory, broker.config.memory_share
    )
