"""Waiting: finds the first message of a topic that matches, and a group's lag.

A search begins at a time, in every queue: one that is made again with the same time finds what the
first one would have found. Nothing is committed, so that the group of a search owns no progress.
"""

import asyncio
import base64
from typing import Final

import msgspec

from roquet.admin import groups
from roquet.admin.client import AdminClient
from roquet.client import CallError, CallRefused, MessageQueue, PullConsumer, StoredMessage
from roquet.log_records import logger
from roquet.model.results import PullStatus
from roquet.wire.codes import ResponseCode

log = logger(__name__)

WAIT_MS: Final = 15_000
"""Time that a broker holds a pull which finds nothing."""

REFRESH_S: Final = 30.0
"""Period between two looks for new queues."""

PAUSE_S: Final = 1.0
"""Pause after an error, and while nobody knows the topic."""

IDLE_S: Final = 0.1
"""Pause after a pull that found nothing: some brokers do not hold them."""

BODY_SIZE_MAX: Final = 48 * 1024
"""Bytes of a body that an event carries: Airflow keeps events and XComs in its database."""

REFUSED_FOR_GOOD: Final = frozenset(
    {
        ResponseCode.NO_PERMISSION,
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    }
)
"""Refusals that come again however often a pull is repeated."""


class WantedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on a message: all that are given have to hold."""

    topic: str
    since_ms: int
    """The message was stored then or later, by the broker's clock."""
    tags: str = "*"
    """One tag, or several joined by `||`."""
    sql: str | None = None
    """A filter by properties instead of tags."""
    key: str | None = None
    """One of the message's keys."""

    def is_met_by(self, message: StoredMessage) -> bool:
        """Whether a message that passed the broker's filter meets the other conditions."""
        has_key = self.key is None or self.key in message.keys
        return has_key and message.stored_ms >= self.since_ms


async def first_message(consumer: PullConsumer, wanted: WantedMessage) -> StoredMessage:
    """Wait for a message that meets the conditions, through failures of brokers.

    Raises CallRefused where a broker refuses access or the filter, and UsageError for a wrong one.
    """
    scans: dict[MessageQueue, asyncio.Task[StoredMessage]] = {}
    try:
        while True:
            for queue in await _queues(consumer, wanted.topic):
                if queue not in scans:
                    scans[queue] = asyncio.create_task(_scan(consumer, queue, wanted))
            if not scans:
                await asyncio.sleep(PAUSE_S)
                continue
            found, _ = await asyncio.wait(
                scans.values(), timeout=REFRESH_S, return_when=asyncio.FIRST_COMPLETED
            )
            if found:
                return min((scan.result() for scan in found), key=lambda found: found.stored_ms)
    finally:
        for scan in scans.values():
            scan.cancel()
        await asyncio.gather(*scans.values(), return_exceptions=True)


async def _queues(consumer: PullConsumer, topic: str) -> list[MessageQueue]:
    try:
        return list(await consumer.queues(topic))
    except CallError as error:
        log.warning("topic %s: %s; trying again", topic, error)
        await asyncio.sleep(PAUSE_S)
        return []


async def _scan(
    consumer: PullConsumer, queue: MessageQueue, wanted: WantedMessage
) -> StoredMessage:
    offset: int | None = None
    while True:
        try:
            if offset is None:
                offset = await consumer.offset_by_time(queue, wanted.since_ms)
            result = await consumer.pull(
                queue, offset, tags=wanted.tags, sql=wanted.sql, wait_ms=WAIT_MS
            )
        except CallError as error:
            if isinstance(error, CallRefused):
                if error.code in REFUSED_FOR_GOOD:
                    raise
                offset = None  # the topic may have been created again
            log.warning("%s: %s; trying again", queue, error)
            await asyncio.sleep(PAUSE_S)
            continue
        for message in filter(wanted.is_met_by, result.messages):
            return message
        offset = result.next_offset
        if result.status is PullStatus.NO_NEW:
            await asyncio.sleep(IDLE_S)


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


async def group_lag(admin: AdminClient, group: str, topic: str | None = None) -> int | None:
    """Messages that a group has not handled, of all its topics or of one.

    None where a broker does not tell. Raises NotFound for a group that no broker knows.
    """
    info = await groups.show(admin, group)
    if topic is None:
        return info.lag
    lags = [queue.lag for queue in info.queues if queue.topic == topic]
    return sum(lags) if lags and info.lag is not None else None
