"""Send, batch.

Every answer names the region, refusals as well: the C++ client looks for it.
"""

from typing import NoReturn

from msgspec.structs import replace

from roquet.broker.broker import Broker
from roquet.broker.ingest.append import SendCall
from roquet.model import names
from roquet.model.errors import CallRefused, MessageIllegal, StoreError, StoreFailed
from roquet.model.topic import TopicConfig
from roquet.net.router import HandlerReply, Peer
from roquet.wire.calls.send import SendReply
from roquet.wire.codes import ResponseCode


def send(broker: Broker, call: SendCall, peer: Peer) -> HandlerReply:
    """Stores one message, or those of a batch that comes under the same code."""
    try:
        queue_id = queue_of(broker, call)
        if call.batch:
            return _batch(broker, call, queue_id, peer)
        stored = broker.put.one(call, queue_id, peer)
    except (CallRefused, MessageIllegal, StoreError) as error:
        return refusal(broker, error)
    appended = stored.appended
    reply = SendReply(
        msg_id=broker.put.message_id(appended.position),
        queue_id=queue_id,
        queue_offset=appended.queue_offset,
        transaction_id=stored.unique_key,
        region=broker.config.region,
        trace_on=broker.config.trace_on,
    )
    if stored.recall_handle:
        reply = replace(reply, recall_handle=stored.recall_handle)
    if broker.config.sync_flush and stored.waits:
        return _when_durable(broker, reply, appended.position + appended.size)
    return reply


def send_batch(broker: Broker, call: SendCall, peer: Peer) -> HandlerReply:
    """Stores several messages of one queue: all of them or none."""
    try:
        return _batch(broker, call, queue_of(broker, call), peer)
    except (CallRefused, MessageIllegal, StoreError) as error:
        return refusal(broker, error)


def _batch(broker: Broker, call: SendCall, queue_id: int, peer: Peer) -> HandlerReply:
    stored = broker.put.batch(call, queue_id, peer)
    appended = stored.appended
    reply = SendReply(
        msg_id=broker.put.message_ids(appended.positions),
        queue_id=queue_id,
        queue_offset=appended.queue_offset,
        region=broker.config.region,
        trace_on=broker.config.trace_on,
    )
    if broker.config.sync_flush and stored.waits:
        return _when_durable(broker, reply, appended.end)
    return reply


async def _when_durable(broker: Broker, reply: SendReply, position: int) -> SendReply:
    """The reply, once the message is on the disk; it says so when that takes too long.

    Where the disk has failed the code is the one that leaves open whether the message is stored.
    """
    try:
        if await broker.flush.durable(position):
            return reply
    except StoreFailed as error:
        return replace(reply, code=ResponseCode.SYSTEM_ERROR, remark=str(error))
    remark = "the message is stored, but not yet on the disk"
    return replace(reply, code=ResponseCode.FLUSH_DISK_TIMEOUT, remark=remark)


def queue_of(broker: Broker, call: SendCall) -> int:
    """The queue to store in: the one asked for, or any."""
    topic = broker.topics.sendable.get(call.topic)
    if topic is None or not broker.config.permission & 2:
        topic = _admitted(broker, call)
    queue_id = call.queue_id
    if 0 <= queue_id < topic.write_queue_nums:
        return queue_id
    if queue_id < 0 < topic.write_queue_nums:
        return broker.rng.randrange(topic.write_queue_nums)
    if queue_id >= 0 and queue_id < topic.read_queue_nums:
        return queue_id  # a topic that shrinks still takes what was on its way
    raise CallRefused(
        ResponseCode.INVALID_PARAMETER,
        f"request queueId[{queue_id}] is illegal, topic {topic.topic_name} has "
        f"{topic.read_queue_nums} read queues and {topic.write_queue_nums} write queues",
    )


def _admitted(broker: Broker, call: SendCall) -> TopicConfig:
    """The topic that a client may send to, made when it does not exist."""
    topic = call.topic
    if not broker.config.writable:
        _refuse(
            ResponseCode.NO_PERMISSION, f"the broker[{broker.config.broker_name}] is not writable"
        )
    if fault := names.topic_remark(topic):
        _refuse(ResponseCode.INVALID_PARAMETER, fault)
    if not names.can_clients_send_to(topic):
        _refuse(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
    made = broker.topics.create_for_send(
        topic,
        call.default_topic,
        call.default_topic_queue_nums,
        call.unit_mode,
        broker.clock.now_ms(),
    )
    if made is None:
        _refuse(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[{topic}] not exist, apply first please! Automatic creation is off here, "
            f"or the default topic {call.default_topic!r} does not allow it",
        )
    return made


def _refuse(code: ResponseCode, remark: str) -> NoReturn:
    raise CallRefused(code, remark)


def refusal(broker: Broker, error: CallRefused | MessageIllegal | StoreError) -> SendReply:
    """The answer to a message that was certainly not stored."""
    match error:
        case CallRefused():
            code, remark = error.code, error.remark
        case MessageIllegal():
            code, remark = ResponseCode.MESSAGE_ILLEGAL, str(error)
        case _:
            code, remark = ResponseCode.SERVICE_NOT_AVAILABLE, str(error)
    config = broker.config
    return SendReply(code=code, remark=remark, region=config.region, trace_on=config.trace_on)
