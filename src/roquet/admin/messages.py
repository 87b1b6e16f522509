"""Messages: look-ups by id, key, offset and time, on all brokers of a cluster."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from roquet.admin.client import AdminClient, leader_addresses
from roquet.client.pull import AS_STORED, PullConsumer
from roquet.log_records import logger
from roquet.model.errors import (
    CallError,
    CallRefused,
    ConnectFailed,
    NotFound,
    RecordError,
    UsageError,
)
from roquet.model.message import StoredMessage
from roquet.model.queue import MessageQueue
from roquet.wire.calls.query import QueryByKey, ViewMessage
from roquet.wire.codes import ResponseCode
from roquet.wire.records import record
from roquet.wire.records.compression import decompress_start
from roquet.wire.records.host_bytes import decode_host
from roquet.wire.records.message_id import parse_offset_message_id

log = logger(__name__)

COUNT: Final = 64
"""Messages of one look-up by default, as in mqadmin."""

BODIES_SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of all bodies of one look-up; those behind it are cut to `BODY_START`."""

BODY_START: Final = 4 * 1024
"""Bytes of a body that a look-up keeps in any case."""

PAGE_MIN: Final = 16
PAGE_SIZE_MIN: Final = 128 * 1024
"""Messages and bytes of an answer below which it is no full page of any broker's."""

SECOND_TOO_FULL: Final = (
    "%s has more messages of one second than the %d of an answer with key %s: some are missing"
)

NOT_FOUND: Final = "can not find message by the offset"
"""Begins the remark of brokers, Apache's too, that have no message at a position."""

LATEST_MS: Final = 2**63 - 1
"""An unbounded end time, as Java clients send it."""


class MessageViewer(PullConsumer):
    """A reader for people: shows a body that cannot be restored as it is stored."""

    _keeps_unreadable = True


class BodyLimit:
    """Cuts bodies of a list of messages once all together are longer than a limit.

    Two megabytes of compressed messages may decompress to gigabytes.
    """

    def __init__(self, size: int = BODIES_SIZE_MAX) -> None:
        self._left = size

    def unfolded(self, message: StoredMessage) -> StoredMessage:
        """A message whose body is as it is stored, with its body or the beginning of it."""
        try:
            body = decompress_start(message.body, message.sys_flag, self._allowed + 1)
        except RecordError as error:
            return self.cut(replace(message, body_note=AS_STORED.format(error)))
        return self.cut(replace(message, body=body))

    def cut(self, message: StoredMessage) -> StoredMessage:
        """A message with its body or the beginning of it."""
        allowed = self._allowed
        self._left -= min(len(message.body), allowed)
        if len(message.body) <= allowed:
            return message
        note = f"cut to its first {allowed:,} bytes"
        return replace(message, body=message.body[:allowed], body_note=note)

    @property
    def _allowed(self) -> int:
        return max(self._left, BODY_START)


async def by_id(
    admin: AdminClient, message_id: str, topic: str | None = None
) -> list[StoredMessage]:
    """The messages of an id, oldest first: several if one was sent or stored more than once.

    A broker's id needs no topic, a producer's does. Empty when the message is gone or was never
    stored. Raises UsageError for a text that is no id, and for a producer's id without a topic.
    """
    try:
        raw_host, position = parse_offset_message_id(message_id)
    except RecordError as error:
        raise UsageError(str(error)) from error
    if topic is not None:
        messages = await by_key(admin, topic, message_id, unique=True)
        if messages:
            return messages
    address, names = decode_host(raw_host), await _broker_names(admin)
    if address in names:
        return await _by_position(admin, address, position, names[address])
    if topic is not None:
        return []
    raise UsageError(
        f"id {message_id} names no broker of this cluster ({address}): "
        "if a producer made it, say the topic, too (--topic)"
    )


async def by_key(  # noqa: PLR0913 - each is optional
    admin: AdminClient,
    topic: str,
    key: str,
    *,
    begin_ms: int = 0,
    end_ms: int = LATEST_MS,
    count: int = COUNT,
    unique: bool = False,
    brokers: Mapping[str, str] | None = None,
) -> list[StoredMessage]:
    """The newest `count` messages of a topic with a key, oldest first.

    Brokers answer page by page, and look among the newest 10,000 messages of a key. Bodies are cut
    as `BodyLimit` says.

    The times are half-open, of storing. `unique` looks for a producer's message id instead of a
    key. `brokers` are addresses by name; None asks those of the topic. Raises ConnectFailed when a
    broker does not answer.
    """
    if brokers is None:
        brokers = leader_addresses((await admin.known_route(topic)).broker_datas)
    call = QueryByKey(
        topic=topic,
        key=key,
        max_num=count,
        begin_timestamp=begin_ms,
        end_timestamp=end_ms,
        unique_key=unique,
    )
    pages = [_by_pages(admin, name, address, call) for name, address in brokers.items()]
    messages = [message for found in await asyncio.gather(*pages) for message in found]
    messages.sort(key=lambda message: (message.stored_ms, message.position))
    limit = BodyLimit()
    return [limit.unfolded(message) for message in messages[-count:]]


async def by_offset(reader: PullConsumer, queue: MessageQueue, offset: int) -> StoredMessage | None:
    """The message at an offset of a queue; None where there is none."""
    result = await reader.pull(queue, offset, 1)
    return next((m for m in result.messages if m.queue_offset == offset), None)


async def by_time(
    reader: PullConsumer, topic: str, begin_ms: int, end_ms: int, *, each: int | None = None
) -> AsyncIterator[StoredMessage]:
    """A topic's messages stored in the half-open time range [begin_ms, end_ms), queue by queue.

    `each` limits the messages of each queue to the oldest ones. Raises UsageError for an unknown
    topic, ConnectFailed when a queue cannot be read.
    """
    for queue in await queues(reader, topic):
        offset, end = await asyncio.gather(
            reader.offset_by_time(queue, begin_ms), reader.max_offset(queue)
        )
        if each is not None:
            end = min(end, offset + each)
        while offset < end:
            result = await reader.pull(queue, offset)
            for message in result.messages:
                if message.stored_ms >= end_ms or message.queue_offset >= end:
                    break
                yield message
            else:
                if result.next_offset <= offset:
                    raise ConnectFailed(f"{queue} cannot be read at offset {offset}")
                offset = result.next_offset
                continue
            break


async def queues(reader: PullConsumer, topic: str) -> Sequence[MessageQueue]:
    """The queues of a topic. Raises NotFound when no broker has it."""
    if queues := await reader.queues(topic):
        return queues
    raise NotFound(f"no broker has a topic {topic!r}")


async def _broker_names(admin: AdminClient) -> dict[str, str]:
    info = await admin.cluster()
    return {
        address: data.broker_name
        for data in info.broker_addr_table.values()
        for address in data.broker_addrs.values()
    }


async def _by_position(
    admin: AdminClient, address: str, position: int, broker: str
) -> list[StoredMessage]:
    """The message at a byte position of a broker's log; empty when there is none."""
    try:
        reply = await admin.ask(address, ViewMessage(offset=position))
    except CallRefused as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND or _is_not_found(error):
            return []
        raise
    return [record.to_message(one, broker=broker) for one in record.decode_many(reply.body)]


def _is_not_found(error: CallRefused) -> bool:
    """Whether a broker has no message at a position; the code alone stands for any fault."""
    remark = error.remark or ""
    return error.code == ResponseCode.SYSTEM_ERROR and remark.startswith(NOT_FOUND)


async def _by_pages(
    admin: AdminClient, broker: str, address: str, call: QueryByKey
) -> list[StoredMessage]:
    """Messages of a key at one broker, at least `max_num` if it has as many.

    An answer has at most 64 messages by default. The next page ends at the oldest message of the
    last one: for our brokers at its position, for Apache's at its time, so that more messages of
    one second than fit into an answer are out of reach there.
    """
    seen, found = set[int](), list[StoredMessage]()
    while len(found) < call.max_num:
        page = await _page(admin, broker, address, call)
        new = [message for message in page if message.position not in seen]
        seen.update(message.position for message in new)
        # Brokers look up a hash of the key: messages with other keys of that hash come along.
        found += [message for message in new if _has_key(message, call)]
        is_full = len(page) >= PAGE_MIN or sum(m.size for m in page) >= PAGE_SIZE_MIN
        if is_full and not new:
            log.warning(SECOND_TOO_FULL, broker, len(page), call.key)
        if not is_full or not new:
            break
        oldest = min(page, key=lambda message: message.position)
        end_ms = min(call.end_timestamp, oldest.stored_ms)
        call = replace(call, end_timestamp=end_ms, last_key=str(oldest.position))
    return found


async def _page(
    admin: AdminClient, broker: str, address: str, call: QueryByKey
) -> list[StoredMessage]:
    """One answer. Raises ConnectFailed for a broker that does not answer."""
    try:
        reply = await admin.ask(address, call)
    except CallError as error:
        if isinstance(error, CallRefused) and error.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        raise ConnectFailed(
            f"{broker} does not answer, so messages may be missing: {error}"
        ) from error
    return [
        record.to_message(one, broker=broker, decompress=False)
        for one in record.decode_many(reply.body)
    ]


def _has_key(message: StoredMessage, call: QueryByKey) -> bool:
    return call.key == message.message_id or (not call.unique_key and call.key in message.keys)
