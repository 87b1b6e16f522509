"""Messages of a fake cluster: encoded records, and a consumer that reads them without a network."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from roquet.model.queue import MessageQueue
from roquet.model.results import PullResult, PullStatus
from roquet.wire.records import record
from roquet.wire.records.host_bytes import encode_host

TOPIC = "orders-0001"

KEY = "order-4711"
"""The key of every message, as a customer's number would be."""

MESSAGES = 64
"""Messages of a key on each broker: as many as one look-up asks for."""

END = 100_000
"""Messages of a queue."""

BODY = b'{"order": 4711, "customer": "ann", "lines": [%s]}' % b", ".join([b'{"article": 1}'] * 60)
"""About a kilobyte."""

_HOST = encode_host("10.0.0.7:10911")


def message_id(offset: int) -> str:
    """The producer's id of the message at an offset."""
    return f"{offset:032X}"


def records(count: int, first: int = 0, queue_id: int = 0) -> bytes:
    """Encoded records of one queue, as a broker's answer has them."""
    now_ms = int(time.time() * 1000)
    return b"".join(
        record.pack(
            queue_id, 0, offset, offset * 1_200, 0, now_ms, _HOST, now_ms + offset, _HOST, 0, 0,
            BODY, TOPIC.encode(),
            f"KEYS\x01{KEY}\x02UNIQ_KEY\x01{message_id(offset)}\x02TAGS\x01new\x02".encode(),
        )
        for offset in range(first, first + count)
    )  # fmt: skip


class FakeReader:
    """A pull consumer whose brokers answer at once; it decodes what they answer."""

    def __init__(self, brokers: Sequence[str], queues: int) -> None:
        self._queues = [MessageQueue(TOPIC, b, q) for b in brokers for q in range(queues)]
        self._answers: dict[tuple[int, int], bytes] = {}

    async def queues(self, _topic: str) -> Sequence[MessageQueue]:
        """Each topic has them all."""
        return self._queues

    async def min_offset(self, _queue: MessageQueue) -> int:
        """The first message is still there."""
        return 0

    async def max_offset(self, _queue: MessageQueue) -> int:
        """The end of each queue."""
        return END

    async def pull(self, queue: MessageQueue, offset: int, count: int, **_: Any) -> PullResult:
        """Messages from an offset on, as far as the queue reaches."""
        count = min(count, END - offset)
        answer = self._answers.get((offset, count))
        if answer is None:
            answer = self._answers[offset, count] = records(count, offset)
        found = [record.to_message(r, broker=queue.broker_name) for r in record.decode_many(answer)]
        return PullResult(
            status=PullStatus.FOUND if found else PullStatus.NO_NEW,
            next_offset=offset + count,
            min_offset=0,
            max_offset=END,
            messages=found,
        )


def open_nothing(reader: FakeReader) -> Callable[[Any], AbstractAsyncContextManager[FakeReader]]:
    """Gives the reader to each request, in the place of a consumer that is opened for it."""

    @asynccontextmanager
    async def opened(_request: Any) -> AsyncIterator[FakeReader]:
        yield reader

    return opened
