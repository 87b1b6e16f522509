"""Replies to requests, handed to the client that waits."""

from typing import Final

from msgspec.structs import replace

from roquet.broker.broker import Broker
from roquet.broker.handlers import send
from roquet.broker.ingest.property_normalizer import properties_text
from roquet.log_records import logger
from roquet.model import properties as names
from roquet.model.errors import CallError, CallRefused, MessageIllegal, StoreError
from roquet.net.router import HandlerReply, Peer
from roquet.wire.calls.reply import PushReply, SendReplyLongNames, SendReplyMessage
from roquet.wire.calls.send import SendReply
from roquet.wire.codes import ResponseCode
from roquet.wire.records.host_bytes import decode_host
from roquet.wire.records.property_text import decode_properties

log = logger(__name__)

PUSH_TIMEOUT_MS: Final = 10_000
"""How long a requester may take to take an answer, as on genuine brokers."""

ReplyCall = SendReplyMessage | SendReplyLongNames


def reply(broker: Broker, call: ReplyCall, peer: Peer) -> HandlerReply:
    """Pushes an answer to the requester; keeps it, too, when the settings say so."""
    try:
        queue_id = send.queue_of(broker, call)
        properties = decode_properties(call.properties.encode("utf-8", "surrogatepass"))
        broker.put.check_size(call.body)
    except (CallRefused, MessageIllegal) as error:
        return send.refusal(broker, error)
    return _reply(broker, replace(call, queue_id=queue_id), properties, peer)


async def _reply(
    broker: Broker, call: ReplyCall, properties: dict[str, str], peer: Peer
) -> SendReply:
    fault = await _push(broker, call, properties, peer)
    stored = _store(broker, call, peer) if broker.config.store_reply_messages else None
    told = SendReply(region=broker.config.region, trace_on=broker.config.trace_on)
    if fault is not None:
        return replace(told, code=ResponseCode.SYSTEM_ERROR, remark=fault)
    return stored or replace(told, msg_id="0", queue_id=call.queue_id)


async def _push(
    broker: Broker, call: ReplyCall, properties: dict[str, str], peer: Peer
) -> str | None:
    """Hand the answer to who waits; None, or why that did not work, in genuine words."""
    client = properties.get(names.REPLY_TO_CLIENT)
    if client is None:
        return f"reply message properties[{names.REPLY_TO_CLIENT}] is null"
    requester = broker.clients.producer(client)
    if requester is None:
        return f"push reply message fail, channel of <{client}> not found."
    try:
        await requester.call(_pushed(broker, call, properties, peer), PUSH_TIMEOUT_MS)
    except CallError as error:
        log.debug("a reply was not pushed to %s: %s", client, error)
        return f"push reply message to {client} fail."
    return None


def _pushed(broker: Broker, call: ReplyCall, properties: dict[str, str], peer: Peer) -> PushReply:
    now_ms = broker.clock.now_ms()
    told = {**properties, names.PUSH_REPLY_TIME: str(now_ms)}
    return PushReply(
        body=call.body,
        producer_group=call.producer_group,
        topic=call.topic,
        default_topic=call.default_topic,
        default_topic_queue_nums=call.default_topic_queue_nums,
        queue_id=call.queue_id,
        sys_flag=call.sys_flag,
        born_timestamp=call.born_timestamp,
        flag=call.flag,
        properties=properties_text(told),
        reconsume_times=call.reconsume_times,
        unit_mode=call.unit_mode,
        born_host=peer.address,
        store_host=decode_host(broker.put.store_host),
        stored_ms=now_ms,
    )


def _store(broker: Broker, call: ReplyCall, peer: Peer) -> SendReply | None:
    """Keep the answer; one that cannot be kept has arrived nevertheless."""
    try:
        stored = broker.put.one(call, call.queue_id, peer)
    except (CallRefused, MessageIllegal, StoreError) as error:
        log.warning("a reply is pushed, but not kept in %s: %s", call.topic, error)
        return None
    return SendReply(
        msg_id=broker.put.message_id(stored.appended.position),
        queue_id=call.queue_id,
        queue_offset=stored.appended.queue_offset,
        transaction_id=stored.unique_key,
        region=broker.config.region,
        trace_on=broker.config.trace_on,
    )
