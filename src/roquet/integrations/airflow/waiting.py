"""Waiting: looks for the first message of a topic that matches; needs no Airflow.

A search begins at a time, in every queue: one that is made again with the same time finds the same
message. Nothing is committed, so that the group of a search owns no progress.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from roquet.client import CallError, MessageQueue, PullConsumer, StoredMessage
from roquet.log_records import logger
from roquet.model.results import PullStatus
from roquet.rules.send_retry import STALE_ROUTE, TRANSIENT, is_transient

log = logger(__name__)

T = TypeVar("T")

BODY_SIZE_MAX: Final = 48 * 1024
"""Bytes of a body that an event carries: Airflow keeps events and XComs in its database."""


async def wait_for(look: Callable[[], Awaitable[T | None]], period_s: float) -> T:
    """Look each `period_s` seconds until there is a result, through failures of brokers.

    Raises CallRefused for a refusal that would come again, and other errors of `look`.
    """
    while True:
        try:
            if (found := await look()) is not None:
                return found
        except CallError as error:
            if not is_transient(error, TRANSIENT | STALE_ROUTE):
                raise
            log.warning("%s; trying again", error)
        await asyncio.sleep(period_s)


class MessageSearch:
    """A search for the first message of a topic that meets all conditions."""

    def __init__(
        self, consumer: PullConsumer, *, topic: str, since_ms: int, key: str | None = None,
        **filters: Any,
    ) -> None:  # fmt: skip
        """`since_ms`: stored then or later; `key`: one of its keys; `filters`: `tags` and `sql`."""
        self._consumer, self._topic, self._since_ms = consumer, topic, since_ms
        self._key, self._filters = key, filters
        self._offsets: dict[MessageQueue, int] = {}

    async def look(self) -> StoredMessage | None:
        """The first match that is stored now; messages that were read before are not read again.

        Raises CallError unless all queues could be read, UsageError for a wrong filter.
        """
        queues = await self._consumer.queues(self._topic)
        try:
            if not any(await asyncio.gather(*map(self._scan, queues))):
                return None
            found = await asyncio.gather(*map(self._scan, queues))  # an earlier one may have come
        except CallError:
            self._offsets.clear()  # the topic may have been created again
            raise
        matches = [message for message in found if message is not None]
        return min(matches, key=lambda m: (m.stored_ms, m.broker_name, m.queue_id), default=None)

    async def _scan(self, queue: MessageQueue) -> StoredMessage | None:
        """The first match of a queue; None when its end comes first."""
        if queue not in self._offsets:
            self._offsets[queue] = await self._consumer.offset_by_time(queue, self._since_ms)
        while True:
            result = await self._consumer.pull(queue, self._offsets[queue], **self._filters)
            for message in result.messages:
                has_key = self._key is None or self._key in message.keys
                if has_key and message.stored_ms >= self._since_ms:  # brokers answer about the time
                    return message
            self._offsets[queue] = result.next_offset
            if result.status is PullStatus.NO_NEW:
                return None


def message_fields(message: StoredMessage) -> dict[str, object]:
    """Return a message as plain values, for an event or an XCom.

    `body` is its text, None where it is not UTF-8 or longer than BODY_SIZE_MAX; `body_base64` are
    its bytes where it is not UTF-8.
    """
    body, encoded = None, None
    if len(message.body) <= BODY_SIZE_MAX:
        try:
            body = message.body.decode()
        except UnicodeDecodeError:
            encoded = base64.b64encode(message.body).decode()
    return {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "stored_ms": message.stored_ms,
        "body": body,
        "body_base64": encoded,
        "body_size": len(message.body),
    }
