"""Reply: a consumer's reply to a request, pushed to the requester."""

from typing import Final

from msgspec.structs import replace

from roquet.broker.control import ControlPlane
from roquet.broker.ingest.property_normalizer import properties_text
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.acknowledging import once_safe
from roquet.broker.operations.sending import check_in_sync, select_queue, send_refusal
from roquet.broker.replication.replication import Replication
from roquet.broker.tables.broker_tables import BrokerTables
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
"""Timeout of a push in ms, as in genuine brokers."""

ReplyCall = SendReplyMessage | SendReplyLongNames


def reply(
    message_log: MessageLog,
    tables: BrokerTables,
    control: ControlPlane,
    replication: Replication,
    call: ReplyCall,
    peer: Peer,
) -> HandlerReply:
    """Push a reply to the requester; also store it if the settings say so."""
    try:
        queue_id = select_queue(tables, control, call)
        properties = decode_properties(call.properties.encode("utf-8", "surrogatepass"))
        message_log.ingest.check_size(call.body)
    except (CallRefused, MessageIllegal) as error:
        return send_refusal(control, error)
    call = replace(call, queue_id=queue_id)
    return _reply(message_log, tables, control, replication, call, properties, peer)


async def _reply(
    message_log: MessageLog,
    tables: BrokerTables,
    control: ControlPlane,
    replication: Replication,
    call: ReplyCall,
    properties: dict[str, str],
    peer: Peer,
) -> SendReply:
    fault = await _push(message_log, tables, control, call, properties, peer)
    stored = (
        _store(message_log, control, replication, call, peer)
        if control.settings.config.store_reply_messages
        else None
    )
    answer = SendReply(
        region=control.settings.config.region, trace_on=control.settings.config.trace_on
    )
    if fault is not None:
        return replace(answer, code=ResponseCode.SYSTEM_ERROR, remark=fault)
    if stored is not None and replication.acknowledgements.is_needed:
        return await once_safe(replication, stored, message_log.store.end_position)
    return stored or replace(answer, msg_id="0", queue_id=call.queue_id)


async def _push(
    message_log: MessageLog,
    tables: BrokerTables,
    control: ControlPlane,
    call: ReplyCall,
    properties: dict[str, str],
    peer: Peer,
) -> str | None:
    """Push to the requester; returns None, or the error in the genuine broker's words."""
    client = properties.get(names.REPLY_TO_CLIENT)
    if client is None:
        return f"reply message properties[{names.REPLY_TO_CLIENT}] is null"
    requester = tables.clients.producer(client)
    if requester is None:
        return f"push reply message fail, channel of <{client}> not found."
    try:
        await requester.call(_pushed(message_log, control, call, properties, peer), PUSH_TIMEOUT_MS)
    except CallError as error:
        log.debug("a reply was not pushed to %s: %s", client, error)
        return f"push reply message to {client} fail."
    return None


def _pushed(
    message_log: MessageLog,
    control: ControlPlane,
    call: ReplyCall,
    properties: dict[str, str],
    peer: Peer,
) -> PushReply:
    now_ms = control.clock.now_ms()
    pushed = {**properties, names.PUSH_REPLY_TIME: str(now_ms)}
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
        properties=properties_text(pushed),
        reconsume_times=call.reconsume_times,
        unit_mode=call.unit_mode,
        born_host=peer.address,
        store_host=decode_host(message_log.ingest.store_host),
        stored_ms=now_ms,
    )


def _store(
    message_log: MessageLog,
    control: ControlPlane,
    replication: Replication,
    call: ReplyCall,
    peer: Peer,
) -> SendReply | None:
    """Store the reply; None on an error, since the requester has it already."""
    try:
        check_in_sync(replication, call)
        stored = message_log.ingest.append(call, call.queue_id, peer)
    except (CallRefused, MessageIllegal, StoreError) as error:
        fields = {"client": peer.address, "topic": call.topic, "group": call.producer_group}
        log.warning("a reply is pushed, but not kept in %s: %s", call.topic, error, extra=fields)
        return None
    return SendReply(
        msg_id=message_log.ingest.message_id(stored.appended.position),
        queue_id=call.queue_id,
        queue_offset=stored.appended.queue_offset,
        transaction_id=stored.unique_key,
        region=control.settings.config.region,
        trace_on=control.settings.config.trace_on,
    )
