"""Receipts: which handle a message has now, and the renewal of those whose consumer asks for it.

A handle is the broker's own with the position of the record behind it. While a message is renewed
its client keeps the first handle; acknowledgements and changes use the newest.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from roquet.log_records import logger
from roquet.model.errors import FieldError, RoquetError
from roquet.net.clock import Clock
from roquet.proxy.clients import ClientTable
from roquet.proxy.cluster import ProxiedCluster
from roquet.rules.delay.delay_levels import retry_delay_ms
from roquet.rules.proxy import renewal
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.wire.calls.pop import Ack, ChangeInvisible
from roquet.wire.codes import ResponseCode
from roquet.wire.receipt_handle import ReceiptHandle, decode_receipt_handle, stored_topic

log = logger(__name__)

_FIELDS: Final = 9

_POSITION_DIGITS_MAX: Final = 19

CLOSE_S: Final = 5
"""Time that the releases of a stop have."""


class Receipt(msgspec.Struct, frozen=True):
    """A delivered message, as one acknowledges it."""

    handle: ReceiptHandle
    position: int
    """Position of the record in the broker's commit log; -1 if the handle does not say it."""

    def text(self) -> str:
        """The receipt handle that clients hold."""
        return f"{self.handle.text()} {self.position}"

    def check_held(self, now_ms: int) -> None:
        """Raise ProxyRefusal when the message's invisible time has passed."""
        if self.handle.pop_ms + self.handle.invisible_ms <= now_ms:
            raise ProxyRefusal(
                StatusCode.INVALID_RECEIPT_HANDLE, "the message's invisible time is over"
            )


def decode_receipt(text: str) -> Receipt:
    """Decode a client's receipt handle; raises ProxyRefusal for anything else."""
    head, _, last = text.rpartition(" ")
    has_position = text.count(" ") >= _FIELDS - 1 and _is_position(last)
    try:
        if has_position:
            return Receipt(decode_receipt_handle(head), int(last))
        return Receipt(decode_receipt_handle(text), -1)
    except FieldError as error:
        raise ProxyRefusal(StatusCode.INVALID_RECEIPT_HANDLE, str(error)) from None


def _is_position(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _POSITION_DIGITS_MAX


class Deliveries:
    """Calls that settle delivered messages of one cluster."""

    def __init__(self, cluster: ProxiedCluster) -> None:
        self._cluster = cluster

    async def ack(self, receipt: Receipt, topic: str, group: str) -> None:
        """Acknowledge a message; raises a RoquetError when its broker does not take it."""
        handle = receipt.handle
        call = Ack(
            consumer_group=group,
            topic=stored_topic(topic, group, handle.retry),
            queue_id=handle.queue_id,
            extra_info=handle.text(),
            offset=handle.offset,
        )
        reply = await self._cluster.call(handle.broker, call)
        if reply.code != ResponseCode.SUCCESS:
            text = f"the broker has no such message in {call.topic}"
            raise ProxyRefusal(StatusCode.INVALID_RECEIPT_HANDLE, text)

    async def change(self, receipt: Receipt, topic: str, group: str, invisible_ms: int) -> Receipt:
        """Change when a message becomes visible again, and return its next receipt."""
        handle = receipt.handle
        call = ChangeInvisible(
            consumer_group=group,
            topic=stored_topic(topic, group, handle.retry),
            queue_id=handle.queue_id,
            extra_info=handle.text(),
            offset=handle.offset,
            invisible_time=invisible_ms,
        )
        reply = await self._cluster.call(handle.broker, call)
        if reply.code != ResponseCode.SUCCESS:
            raise ProxyRefusal(
                StatusCode.INVALID_RECEIPT_HANDLE, "the message's invisible time is over"
            )
        changed = msgspec.structs.replace(
            handle,
            start=handle.offset,
            pop_ms=reply.pop_time,
            invisible_ms=reply.invisible_time,
            revive_queue=reply.revive_qid,
        )
        return Receipt(changed, receipt.position)


class ReceiptKey(msgspec.Struct, frozen=True):
    """A delivered message, as its client names it."""

    client_id: str
    group: str
    handle: str
    """The handle that the client got."""


class RenewedReceipt(msgspec.Struct):
    """A receipt that is renewed until its message is settled."""

    topic: str
    receipt: Receipt
    received_ms: int
    visible_ms: int
    """Time when the message becomes visible again; both times are on the monotonic clock."""
    reconsume_times: int
    renewals: int = 0
    failures: int = 0
    is_settled: bool = False
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    """Held while its handle changes or the message is settled: a broker takes a renewal after an
    acknowledgement, and delivers the message again."""


class ReceiptRenewals:
    """Receipts of messages that are being handled, each renewed before its time is over."""

    def __init__(
        self, deliveries: Deliveries, cluster: ProxiedCluster, clients: ClientTable, clock: Clock
    ) -> None:
        self._deliveries = deliveries
        self._cluster = cluster
        self._clients = clients
        self._clock = clock
        self._held: dict[ReceiptKey, RenewedReceipt] = {}
        self._leaving: list[tuple[ReceiptKey, RenewedReceipt]] = []
        clients.on_gone.append(self._client_gone)

    def __len__(self) -> int:
        """Number of messages that are renewed."""
        return len(self._held)

    def add(self, key: ReceiptKey, receipt: Receipt, topic: str, reconsume_times: int) -> None:
        """Renew a delivered message until it is settled."""
        now_ms = self._clock.monotonic_ms()
        visible_ms = now_ms + receipt.handle.invisible_ms
        self._held[key] = RenewedReceipt(topic, receipt, now_ms, visible_ms, reconsume_times)

    @asynccontextmanager
    async def settle(self, key: ReceiptKey) -> AsyncIterator[Receipt]:
        """Settle a message by its newest receipt; it is renewed no more, except after an error.

        Waits for a renewal under way. Raises ProxyRefusal if the receipt is malformed or expired.
        """
        if (held := self._held.get(key)) is None:
            receipt = decode_receipt(key.handle)
            receipt.check_held(self._clock.now_ms())
            yield receipt
            return
        async with held.lock:
            yield held.receipt
            self.remove(key)
            held.is_settled = True

    def remove(self, key: ReceiptKey) -> None:
        """Renew a message no more."""
        if (held := self._held.pop(key, None)) is not None:
            held.is_settled = True

    async def step(self) -> None:
        """Renew what is due, and release what clients have left behind."""
        now_ms = self._clock.monotonic_ms()
        # A receive that was under way when its client left may have added receipts since.
        for client_id in {key.client_id for key in self._held}:
            if self._clients.get(client_id) is None:
                self._client_gone(client_id)
        leaving, self._leaving = self._leaving, []
        # All at once: a broker that does not answer delays the others by one timeout at most.
        await asyncio.gather(
            *(self._try_change(key, held, renewal.RELEASE_MS) for key, held in leaving),
            *(self._extend(key, held, now_ms) for key, held in self._due(now_ms)),
        )

    def _due(self, now_ms: int) -> Iterator[tuple[ReceiptKey, RenewedReceipt]]:
        for key, held in list(self._held.items()):
            if renewal.is_due(held.visible_ms, now_ms):
                yield key, held

    async def _extend(self, key: ReceiptKey, held: RenewedReceipt, now_ms: int) -> None:
        if not renewal.is_over(held.received_ms, now_ms):
            await self._renew(key, held)
            return
        self._held.pop(key, None)
        try:
            group = await self._cluster.group(key.group, held.topic)
        except RoquetError:  # the message comes again when its time is over
            return
        delay_ms = retry_delay_ms(group.group_retry_policy, held.reconsume_times)
        await self._try_change(key, held, max(delay_ms, 1))

    async def _renew(self, key: ReceiptKey, held: RenewedReceipt) -> None:
        if await self._try_change(key, held, renewal.renewal_ms(held.renewals)):
            held.renewals, held.failures = held.renewals + 1, 0
            return
        held.failures += 1
        if held.failures >= renewal.FAILURES_MAX:
            self._held.pop(key, None)

    async def _try_change(self, key: ReceiptKey, held: RenewedReceipt, invisible_ms: int) -> bool:
        async with held.lock:
            if held.is_settled:
                return True
            try:
                held.receipt = await self._deliveries.change(
                    held.receipt, held.topic, key.group, invisible_ms
                )
            except RoquetError as error:
                log.info("a message of %s in group %s: %s", held.topic, key.group, error)
                return False
            held.visible_ms = self._clock.monotonic_ms() + invisible_ms
            return True

    async def close(self) -> None:
        """Release everything: other consumers get it soon."""
        self._leaving += self._held.items()
        self._held.clear()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.step()
        except TimeoutError:
            log.info("some messages come again when their time is over: brokers did not answer")

    def _client_gone(self, client_id: str) -> None:
        for key in [key for key in self._held if key.client_id == client_id]:
            self._leaving.append((key, self._held.pop(key)))
