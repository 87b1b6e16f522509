"""Delivery: one parcel of messages to a queue, and to another one when that fails."""

from collections.abc import Sequence
from typing import Final

import msgspec

from roquet.client.config import ProducerConfig
from roquet.client.outgoing import Outgoing
from roquet.client.session import Session
from roquet.model.errors import CallError, CallRefused, ConnectFailed, ConnectionLost
from roquet.model.queue import MessageQueue
from roquet.model.results import SendReceipt, SendStatus
from roquet.rules.select import by_hash, next_queue
from roquet.wire.batch import encode_batch
from roquet.wire.calls.send import Send, SendBatch, SendReply
from roquet.wire.codes import ResponseCode

RETRIED: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Refusals that another broker may not share: Java tries these again."""

STALE: Final = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER})
"""Refusals that a route may have caused which is no longer true."""

RETRY_PAUSE_MS: Final = 100
"""Before the first further try on the same broker; it doubles. Another one is tried at once."""

STATUSES: Final = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class Parcel(msgspec.Struct, frozen=True):
    """Messages of one topic that go to one queue together."""

    items: Sequence[Outgoing]
    order_hash: int | None
    """What chooses the queue; None when any will do."""

    @classmethod
    def of(cls, items: Sequence[Outgoing]) -> "Parcel":
        """A parcel whose queue is that of its ordered messages."""
        hashes = (item.order_hash for item in items)
        return cls(items, next((hashed for hashed in hashes if hashed is not None), None))

    @property
    def topic(self) -> str:
        """The topic of all."""
        return self.items[0].topic


class Delivery:
    """Sends parcels, and knows whose turn it is."""

    def __init__(self, session: Session, config: ProducerConfig, group: str) -> None:
        self._session = session
        self._config = config
        self._group = group
        self._turn = config.rng.getrandbits(16)

    def known_queues(self, topic: str) -> Sequence[MessageQueue] | None:
        """The queues of a topic that may be written to, as far as known; another list when new."""
        return self._session.routes.writable(topic)

    async def queues_in_time(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic, within the time of one send."""
        now_ms = self._config.clock.monotonic_ms()
        return await self.queues(topic, now_ms + self._config.send_timeout_ms)

    async def queues(self, topic: str, deadline_ms: int) -> Sequence[MessageQueue]:
        """The queues of a topic that may be written to; waits for the first one."""
        routes = self._session.routes
        found = routes.writable(topic)
        while not found:
            await routes.find_writable(topic, self._config.new_topic_queues, deadline_ms)
            found = routes.writable(topic)
        return found

    def choose(
        self, queues: Sequence[MessageQueue], order_hash: int | None, avoid: str | None = None
    ) -> MessageQueue:
        """The queue of a key, or the one whose turn it is."""
        if order_hash is not None:
            return queues[by_hash(order_hash, len(queues))]
        queue, self._turn = next_queue(queues, self._turn, avoid=avoid)
        return queue

    async def send(
        self, parcel: Parcel, timeout_ms: int | None = None, queue: MessageQueue | None = None
    ) -> Sequence[SendReceipt]:
        """A receipt for each message; `queue` says where to try first."""
        clock = self._config.clock
        timeout_ms = self._config.send_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = clock.monotonic_ms() + timeout_ms
        if queue is None:
            queue = self.choose(await self.queues(parcel.topic, deadline_ms), parcel.order_hash)
        pause_ms = RETRY_PAUSE_MS
        for tries_left in reversed(range(self._config.retries + 1)):
            try:
                return await self._try(parcel, queue, deadline_ms)
            except CallError as error:
                self._look_at(error)
                left_ms = deadline_ms - clock.monotonic_ms()
                if not (tries_left and left_ms > 0 and _may_be_tried_again(error)):
                    raise
            failed = queue
            if parcel.order_hash is None:
                queue = await self._other(parcel, failed, deadline_ms)
            if queue.broker_name == failed.broker_name:
                await clock.sleep(min(pause_ms, left_ms))
                pause_ms *= 2
        raise AssertionError("the last try returns or raises")

    async def send_oneway(self, parcel: Parcel) -> None:
        """Hand a parcel to the network."""
        queue = self.choose(await self.queues_in_time(parcel.topic), parcel.order_hash)
        address = self._session.routes.leader(queue.broker_name)
        await self._session.pool.oneway(address, self._call(parcel, queue))

    async def _other(self, parcel: Parcel, failed: MessageQueue, deadline_ms: int) -> MessageQueue:
        queues = await self.queues(parcel.topic, deadline_ms)
        return self.choose(queues, None, avoid=failed.broker_name)

    async def _try(
        self, parcel: Parcel, queue: MessageQueue, deadline_ms: int
    ) -> Sequence[SendReceipt]:
        session = self._session
        address = session.routes.leader(queue.broker_name)
        left_ms = deadline_ms - self._config.clock.monotonic_ms()
        reply = await session.pool.call(address, self._call(parcel, queue), max(left_ms, 1))
        return receipts(parcel, queue, reply)

    def _call(self, parcel: Parcel, queue: MessageQueue) -> Send:
        first = parcel.items[0]
        if len(parcel.items) == 1:
            body, sys_flag = first.squeezed(self._config)
            return Send(
                body=body,
                producer_group=self._group,
                topic=first.topic,
                default_topic_queue_nums=self._config.new_topic_queues,
                queue_id=queue.queue_id,
                sys_flag=sys_flag,
                born_timestamp=first.born_ms,
                flag=first.flag,
                properties=first.properties,
            )
        return SendBatch(
            body=encode_batch([item.batch_item() for item in parcel.items]),
            producer_group=self._group,
            topic=first.topic,
            default_topic_queue_nums=self._config.new_topic_queues,
            queue_id=queue.queue_id,
            born_timestamp=first.born_ms,
        )

    def _look_at(self, error: CallError) -> None:
        """A broker that is gone, or does not know topic or queue, may mean a stale route."""
        if not isinstance(error, CallRefused) or error.code in STALE:
            self._session.routes.doubt()


def receipts(parcel: Parcel, queue: MessageQueue, reply: SendReply) -> Sequence[SendReceipt]:
    """What the reply says of each message: a batch lies in the queue without gaps."""
    stored = MessageQueue(queue.topic, queue.broker_name, reply.queue_id)
    status = STATUSES[ResponseCode(reply.code)]
    ids = reply.msg_id.split(",")
    if len(ids) != len(parcel.items):  # a topic of whole batches stores them under one id
        ids = [reply.msg_id] * len(parcel.items)
    return [
        SendReceipt(
            status=status,
            message_id=item.message_id,
            offset_message_id=offset_id,
            queue=stored,
            queue_offset=offset,
        )
        for offset, (item, offset_id) in enumerate(
            zip(parcel.items, ids, strict=True), reply.queue_offset
        )
    ]


def _may_be_tried_again(error: CallError) -> bool:
    if isinstance(error, CallRefused):
        return error.code in RETRIED
    return isinstance(error, ConnectFailed | ConnectionLost)
