"""Sending: messages go to a queue that the proxy chooses, and to another one after a failure."""

from typing import Final

from roquet.client.sending.outgoing import OutgoingBatch
from roquet.client.sending.prepare import PreparedMessage
from roquet.model.errors import RoquetError
from roquet.model.results import SendReceipt, SendStatus
from roquet.net.clock import Clock
from roquet.proxy.answers import common_status, status_of
from roquet.proxy.caller import Caller
from roquet.proxy.cluster import ProxiedCluster
from roquet.proxy.config import ProxyConfig
from roquet.proxy.messages import prepare, to_properties
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.transaction_id import TransactionId
from roquet.rules.proxy import validation
from roquet.rules.proxy.message_type import MessageType, check_type, message_type
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.wire.calls.timer import Recall
from roquet.wire.receipt_handle import decode_recall_handle
from roquet.wire.records.message_id import parse_offset_message_id

SEND_TIMEOUT_MS: Final = 3_000
"""Time of a send without a deadline, its retries included."""

STATUSES: Final = {
    SendStatus.SEND_OK: StatusCode.OK,
    SendStatus.FLUSH_DISK_TIMEOUT: StatusCode.MASTER_PERSISTENCE_TIMEOUT,
    SendStatus.FLUSH_SLAVE_TIMEOUT: StatusCode.SLAVE_PERSISTENCE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE: StatusCode.HA_NOT_AVAILABLE,
}


class SendingHandler:
    """Stores messages, and recalls delayed ones."""

    __slots__ = ("_clock", "_cluster", "_config")

    def __init__(self, cluster: ProxiedCluster, config: ProxyConfig) -> None:
        self._cluster = cluster
        self._config = config
        self._clock: Clock = config.clock

    async def send(
        self, request: service.SendMessageRequest, caller: Caller
    ) -> service.SendMessageResponse:
        """Store messages of one topic, each with its own result; none if one of them is illegal."""
        topics = {message.topic.name for message in request.messages}
        if len(topics) != 1:
            text = "a request has at least one message, and all have one topic"
            raise ProxyRefusal(StatusCode.MESSAGE_CORRUPTED, text)
        topic = validation.check_topic(topics.pop())
        limit_ms = SEND_TIMEOUT_MS if caller.left_ms is None else caller.left_ms
        deadline_ms = self._cluster.delivery.deadline_ms(limit_ms)
        ready = [await self._prepare(message, topic, caller) for message in request.messages]
        entries = [await self._store(*it, deadline_ms) for it in ready]
        status = common_status([entry.status for entry in entries])
        return service.SendMessageResponse(status=status, entries=entries)

    async def _prepare(
        self, message: pb.Message, topic: str, caller: Caller
    ) -> tuple[PreparedMessage, bool]:
        """The message to send, and whether it is a half message."""
        validation.check_body(len(message.body))
        now_ms = self._clock.now_ms()
        properties = to_properties(message, topic, caller, now_ms)
        kind = message_type(properties)
        await self._cluster.check_writable(topic)
        await self._check_type(kind, topic)
        is_half = kind is MessageType.TRANSACTION
        if is_half:
            self._cluster.ask_about(topic)
        return prepare(message, topic, properties, now_ms), is_half

    async def _check_type(self, kind: MessageType, topic: str) -> None:
        """Raise ProxyRefusal for an unknown topic, or one that does not take such messages."""
        await self._cluster.find_route(topic)
        if self._config.check_message_types:
            check_type(kind, topic, await self._cluster.topic_type(topic))

    async def _store(
        self, message: PreparedMessage, is_half: bool, deadline_ms: int
    ) -> service.SendResultEntry:
        sender = self._cluster.sender(transactional=is_half)
        try:
            (receipt,) = await sender.send(OutgoingBatch((message,), message), deadline_ms)
        except RoquetError as error:  # others of the request may be stored
            return service.SendResultEntry(status=status_of(error))
        return _entry(receipt, is_half=is_half)

    async def recall(
        self, request: service.RecallMessageRequest, _caller: Caller
    ) -> service.RecallMessageResponse:
        """Cancel a delayed message that was not delivered yet."""
        topic = validation.check_topic(request.topic.name)
        await self._check_type(MessageType.DELAY, topic)
        handle = decode_recall_handle(request.recall_handle)
        call = Recall(topic=topic, recall_handle=request.recall_handle, producer_group=topic)
        reply = await self._cluster.call(handle.broker, call)
        return service.RecallMessageResponse(message_id=reply.msg_id)


def _entry(receipt: SendReceipt, *, is_half: bool) -> service.SendResultEntry:
    code = STATUSES[receipt.status]
    transaction_id = receipt.message_id
    if is_half:
        queue, (_, position) = receipt.queue, parse_offset_message_id(receipt.offset_message_id)
        transaction_id = TransactionId(
            queue.broker_name, receipt.queue_offset, position, receipt.message_id
        ).text()
    return service.SendResultEntry(
        status=pb.Status(code=code.name, message=code.name),
        message_id=receipt.message_id,
        transaction_id=transaction_id,
        offset=receipt.queue_offset,
        recall_handle=receipt.recall_handle or "",
    )
