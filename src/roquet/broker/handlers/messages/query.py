"""Query: messages by key, by tag and by position."""

import asyncio
from typing import Final

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.reading_checks import ReadingChecks
from roquet.broker.refusals import system_error
from roquet.model import properties as names
from roquet.model.errors import RecordError
from roquet.net.router import HandlerReply, Peer
from roquet.rules.consumption.pull import BYTES_MAX
from roquet.store.store import Store
from roquet.wire.call import Reply
from roquet.wire.calls.query import QueryByKey, QueryReply, ViewMessage
from roquet.wire.codes import ResponseCode
from roquet.wire.java_hash import hash_code
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import Record, decode

UNIQUE_COUNT: Final = 32
"""Messages that may share a unique key: retries of a producer, and of consumers."""

TAG: Final = "T"
"""The index type of a tag."""

TAG_LOOK_COUNT: Final = 100_000
"""Newest queue entries that are searched for a tag: tags are not in the key index."""

POSITION_DIGITS: Final = 20
"""A longer number is no position of a log."""

LOOK_COUNT: Final = 1_024
"""Entries read before others have their turn: less than half a millisecond."""

INDEX_STEPS: Final = 200
"""Steps of the key index that a query waits for: at most a second."""

MATCH_COUNT: Final = 4
"""Messages with the tag's hash that are decoded before others have their turn: small ones take a
tenth of a millisecond, the largest some milliseconds each."""


class QueryHandler(BrokerComponent, frozen=True):
    """Finds messages by key, tag and position."""

    log: MessageLog
    control: ControlPlane
    reading: ReadingChecks

    def by_key(self, call: QueryByKey, _peer: Peer) -> HandlerReply:
        """Return the newest messages of a topic with a key, as many as fit in a reply."""
        wished = max(call.max_num, UNIQUE_COUNT) if call.unique_key else call.max_num
        if wished < 0:
            raise system_error(f"{wished} messages cannot be found")
        self.reading.check_delivered(call.topic)
        store, count_max = self.log.store, min(wished, self.control.settings.config.query_count_max)
        if call.index_type == TAG:
            return _by_tag(store, call, count_max)
        end = store.end_position
        store.dispatch()  # messages that were just acknowledged are found
        if store.indexed_position < end:
            return _by_key_later(store, call, count_max, end)
        return _by_key(store, call, count_max)

    def by_position(self, call: ViewMessage, _peer: Peer) -> Reply:
        """Return the record at a position of the commit log."""
        store, only_confirmed = self.log.store, not call.unconfirmed
        record = None
        if call.offset >= 0:
            record = store.message_at(call.offset, only_confirmed=only_confirmed)
        if record is None:
            raise system_error(f"can not find message by the offset, {call.offset}")
        return Reply(body=bytes(record))


async def _by_key_later(store: Store, call: QueryByKey, count_max: int, end: int) -> QueryReply:
    """Answer once the index is at `end`, or cannot go on, or has too much to do."""
    for _ in range(INDEX_STEPS):
        await asyncio.sleep(0)
        if store.indexed_position >= end or not store.dispatch():
            break
    return _by_key(store, call, count_max)


def _by_key(store: Store, call: QueryByKey, count_max: int) -> QueryReply:
    matches = store.query(
        call.topic,
        call.key,
        count_max=count_max,
        bytes_max=BYTES_MAX,
        begin_ms=call.begin_timestamp,
        end_ms=call.end_timestamp,
        **_behind(call.last_key or ""),
    )
    return _answer(matches.records, matches.last_update_ms, matches.last_update_position)


def _behind(last_key: str) -> dict[str, int]:
    """The limit of a page behind another; none for the page keys of Apache's clients."""
    is_position = last_key.isascii() and last_key.isdecimal() and len(last_key) < POSITION_DIGITS
    return {"before": int(last_key)} if is_position else {}


async def _by_tag(store: Store, call: QueryByKey, count_max: int) -> QueryReply:
    """The newest messages of a topic with a tag, in the order of the log."""
    raw_by_position: dict[int, bytes] = {}
    last_ms = size = 0
    positions = await _tagged(store, call.topic, hash_code(call.key))
    for number, position in enumerate(sorted(positions, reverse=True), 1):
        if len(raw_by_position) >= count_max or size >= BYTES_MAX:
            break
        raw = store.message_at(position)
        if raw is not None and (record := _wanted(raw, call)) is not None:
            raw_by_position[position] = raw
            last_ms, size = max(last_ms, record.stored_ms), size + len(raw)
        if number % MATCH_COUNT == 0:
            await asyncio.sleep(0)
    records = [raw_by_position[position] for position in sorted(raw_by_position)]
    return _answer(records, last_ms, max(raw_by_position, default=0))


async def _tagged(store: Store, topic: str, code: int) -> list[int]:
    """Positions of messages whose tag has this hash, among the newest of each queue."""
    queue_ids = store.queue_ids(topic)
    positions: list[int] = []
    for queue_id in queue_ids:
        least, end = store.bounds(topic, queue_id)
        least = max(least, end - TAG_LOOK_COUNT // len(queue_ids))
        for start in range(least, end, LOOK_COUNT):
            found = store.queue_stats.entries(topic, queue_id, start, min(LOOK_COUNT, end - start))
            positions += [position for position, _, tag_code in found if tag_code == code]
            await asyncio.sleep(0)
    return positions


def _wanted(raw: bytes, call: QueryByKey) -> Record | None:
    try:
        record = decode(raw)
        tag = decode_properties(record.properties).get(names.TAGS)
    except RecordError:
        return None
    is_timely = call.begin_timestamp <= record.stored_ms <= call.end_timestamp
    return record if is_timely and tag == call.key else None


def _answer(records: list[bytes], last_ms: int, last_position: int) -> QueryReply:
    """The reply.

    The progress of the index is included only if there are messages, as at Apache's.
    """
    if not records:
        return QueryReply(
            code=ResponseCode.QUERY_NOT_FOUND,
            remark="can not find message, maybe time range not correct",
            index_last_update_timestamp=0,
            index_last_update_phyoffset=0,
        )
    return QueryReply(
        index_last_update_timestamp=last_ms,
        index_last_update_phyoffset=last_position,
        body=b"".join(records),
    )
