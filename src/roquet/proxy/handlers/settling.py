"""Settling: messages are acknowledged, kept for longer, or given up."""

import asyncio
from collections.abc import Sequence
from typing import Final

from roquet.client.reading.message import DEAD_LETTER
from roquet.log_records import logger
from roquet.model.errors import RoquetError
from roquet.model.message import StoredMessage
from roquet.proxy.answers import OK, common_status, status_of
from roquet.proxy.caller import Caller
from roquet.proxy.cluster import ProxiedCluster
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.receipts import Deliveries, Receipt, ReceiptKey, ReceiptRenewals
from roquet.rules.proxy import renewal
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.rules.proxy.validation import check_group, check_invisible_ms, check_topic
from roquet.wire.calls.send import SendBack
from roquet.wire.receipt_handle import stored_topic

log = logger(__name__)


ENTRIES_MAX: Final = 1_024
"""Acknowledgements of one request: clients ask for 32 messages at a time."""


class SettlingHandler:
    """Settles delivered messages at their brokers."""

    __slots__ = ("_cluster", "_deliveries", "_renewals")

    def __init__(
        self,
        cluster: ProxiedCluster,
        deliveries: Deliveries,
        renewals: ReceiptRenewals,
    ) -> None:
        self._cluster = cluster
        self._deliveries = deliveries
        self._renewals = renewals

    async def ack(
        self, request: service.AckMessageRequest, caller: Caller
    ) -> service.AckMessageResponse:
        """Acknowledge messages, each with its own result."""
        topic, group = check_topic(request.topic.name), check_group(request.group.name)
        if len(request.entries) > ENTRIES_MAX:
            text = f"{len(request.entries)} acknowledgements are over the limit of {ENTRIES_MAX}"
            raise ProxyRefusal(StatusCode.BAD_REQUEST, text)
        if not request.entries:
            raise ProxyRefusal(StatusCode.BAD_REQUEST, "the request acknowledges no message")
        await self._cluster.find_route(topic)
        work = (self._ack(entry, topic, group, caller) for entry in request.entries)
        entries = await asyncio.gather(*work)
        status = common_status([entry.status for entry in entries])
        return service.AckMessageResponse(status=status, entries=entries)

    async def _ack(
        self, entry: service.AckMessageEntry, topic: str, group: str, caller: Caller
    ) -> service.AckMessageResultEntry:
        key = ReceiptKey(caller.client_id, group, entry.receipt_handle)
        try:
            async with self._renewals.settle(key) as receipt:
                await self._deliveries.ack(receipt, topic, group)
            status = OK
        except RoquetError as error:
            status = status_of(error)
        return service.AckMessageResultEntry(
            message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status
        )

    async def change(
        self, request: service.ChangeInvisibleDurationRequest, caller: Caller
    ) -> service.ChangeInvisibleDurationResponse:
        """Change when a message becomes visible again: its next receipt is the answer."""
        topic, group = check_topic(request.topic.name), check_group(request.group.name)
        invisible_ms = check_invisible_ms(request.invisible_duration.ToMilliseconds())
        await self._cluster.find_route(topic)
        key = ReceiptKey(caller.client_id, group, request.receipt_handle)
        async with self._renewals.settle(key) as receipt:
            # Brokers take no time of 0 ms.
            changed = await self._deliveries.change(
                receipt, topic, group, max(invisible_ms, 1), suspend=request.suspend
            )
        return service.ChangeInvisibleDurationResponse(receipt_handle=changed.text())

    async def forward(
        self, request: service.ForwardMessageToDeadLetterQueueRequest, caller: Caller
    ) -> service.ForwardMessageToDeadLetterQueueResponse:
        """Move a message to its group's dead letters, and acknowledge it after that."""
        topic, group = check_topic(request.topic.name), check_group(request.group.name)
        await self._cluster.find_route(topic)
        key = ReceiptKey(caller.client_id, group, request.receipt_handle)
        async with self._renewals.settle(key) as receipt:
            if receipt.position < 0:
                text = "the receipt handle does not say where the message is stored"
                raise ProxyRefusal(StatusCode.INVALID_RECEIPT_HANDLE, text)
            handle = receipt.handle
            stored = stored_topic(topic, group, handle.retry)
            await self._cluster.check_stored(handle.broker, receipt.position, stored)
            await self._move_to_dead_letters(receipt, request.message_id, topic, group)
        return service.ForwardMessageToDeadLetterQueueResponse()

    async def move_to_dead_letters(
        self, receipt: Receipt, message: StoredMessage, topic: str, group: str
    ) -> None:
        """Move a message over its limit of tries to the dead letters; it comes again if not."""
        try:
            await self._move_to_dead_letters(receipt, message.message_id, topic, group)
        except RoquetError as error:
            log.warning(
                "message %s of %s is no dead letter yet: %s", message.message_id, topic, error
            )

    async def _move_to_dead_letters(
        self, receipt: Receipt, message_id: str, topic: str, group: str
    ) -> None:
        call = SendBack(
            offset=receipt.position,
            group=group,
            delay_level=DEAD_LETTER,
            origin_msg_id=message_id,
            origin_topic=topic,
            max_reconsume_times=0,
            broker_name=receipt.handle.broker,
        )
        await self._cluster.call(receipt.handle.broker, call)
        await self._deliveries.ack(receipt, topic, group)

    async def drop(self, receipt: Receipt, topic: str, group: str) -> None:
        """Acknowledge a message that its client's filter leaves out."""
        try:
            await self._deliveries.ack(receipt, topic, group)
        except RoquetError as error:
            log.info("a message of %s that is left out comes again: %s", topic, error)

    async def release(self, receipts: Sequence[Receipt], topic: str, group: str) -> None:
        """Let messages come again at once that no client has got; that counts as no try."""
        for receipt in receipts:
            try:
                after_ms = renewal.RELEASE_MS
                await self._deliveries.change(receipt, topic, group, after_ms, suspend=True)
            except RoquetError as error:
                log.info("a message of %s comes again when its time is over: %s", topic, error)
