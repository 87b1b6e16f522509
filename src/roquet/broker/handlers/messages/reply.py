"""Reply: a consumer's reply to a request, pushed to the requester."""

from typing import Final

from msgspec.structs import replace

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.ingest.property_normalizer import properties_text
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.safe_replies import SafeReplies
from roquet.broker.operations.sending import SendChecks
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


class ReplyHandler(BrokerComponent, frozen=True):
    """Pushes replies to the producers that sent the requests."""

    log: MessageLog
    tables: BrokerTables
    control: ControlPlane
    checks: SendChecks
    replies: SafeReplies

    def reply(self, call: ReplyCall, peer: Peer) -> HandlerReply:
        """Push a reply to the requester; also store it if the settings say so."""
        try:
            queue_id = self.checks.select_queue(call)
            properties = decode_properties(call.properties.encode("utf-8", "surrogatepass"))
            self.log.ingest.check_size(call.body)
        except (CallRefused, MessageIllegal) as error:
            return self.checks.refusal(error)
        call = replace(call, queue_id=queue_id)
        return self._reply(call, properties, peer)

    async def _reply(self, call: ReplyCall, properties: dict[str, str], peer: Peer) -> SendReply:
        fault = await self._push(call, properties, peer)
        stored = (
            self._store(call, peer) if self.control.settings.config.store_reply_messages else None
        )
        answer = SendReply(
            region=self.control.settings.config.region,
            trace_on=self.control.settings.config.trace_on,
        )
        if fault is not None:
            return replace(answer, code=ResponseCode.SYSTEM_ERROR, remark=fault)
        if stored is not None:
            return await self.replies.once_safe(stored, self.log.store.end_position)
        return replace(answer, msg_id="0", queue_id=call.queue_id)

    async def _push(self, call: ReplyCall, properties: dict[str, str], peer: Peer) -> str | None:
        """Push to the requester; returns None, or the error in the genuine broker's words."""
        client = properties.get(names.REPLY_TO_CLIENT)
        if client is None:
            return f"reply message properties[{names.REPLY_TO_CLIENT}] is null"
        requester = self.tables.clients.producer(client)
        if requester is None:
            return f"push reply message fail, channel of <{client}> not found."
        try:
            await requester.call(self._pushed(call, properties, peer), PUSH_TIMEOUT_MS)
        except CallError as error:
            log.debug("a reply was not pushed to %s: %s", client, error)
            return f"push reply message to {client} fail."
        return None

    def _pushed(self, call: ReplyCall, properties: dict[str, str], peer: Peer) -> PushReply:
        now_ms = self.control.clock.now_ms()
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
            store_host=decode_host(self.log.ingest.store_host),
            stored_ms=now_ms,
        )

    def _store(self, call: ReplyCall, peer: Peer) -> SendReply | None:
        """Store the reply; None on an error, since the requester has it already."""
        try:
            self.checks.check_in_sync(call)
            stored = self.log.ingest.append(call, call.queue_id, peer)
        except (CallRefused, MessageIllegal, StoreError) as error:
            fields = {"client": peer.address, "topic": call.topic, "group": call.producer_group}
            log.warning(
                "a reply is pushed, but not kept in %s: %s", call.topic, error, extra=fields
            )
            return None
        return SendReply(
            msg_id=self.log.ingest.message_id(stored.appended.position),
            queue_id=call.queue_id,
            queue_offset=stored.appended.queue_offset,
            transaction_id=stored.unique_key,
            region=self.control.settings.config.region,
            trace_on=self.control.settings.config.trace_on,
        )
