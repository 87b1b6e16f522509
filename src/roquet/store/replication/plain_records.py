"""Plain records: columns of ordinary records that follow each other, for queues and key index.

    log     a0 b7 a1 a2 b8 ½      whole records of several queues, then part of one
    groups  a: 0 to 2, b: 7 to 8  encoded entries, offsets without a gap

Most records are ordinary; a compiled loop takes many at a time. Others are left to the caller.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from roquet.store.commit_log.unindexed_buffer import RecordFacts
from roquet.store.consume_queue.rebuild import SCHEDULE_TOPIC, has_entry
from roquet.wire.records.partial_decode import decode_partly, property_value, tag_code
from roquet.wire.records.record import ENTRY
from roquet.wire.records.speedups import compiled

ROWS_MAX: Final = 8_192
"""Records of one call at most: 4 ms, or 40 without a compiler."""


class EntryGroup(NamedTuple):
    """Consecutive entries of one queue."""

    topic: bytes
    queue_id: int
    first: int
    """Offset of the first entry."""
    entries: bytes
    """Encoded."""


PlainRecords = tuple[int, int, list[tuple[bytes, int, int, bytes]], RecordFacts]
"""Number of records, position behind the last one, the fields of an EntryGroup for each queue in
order of appearance, and the columns that the key index needs."""


@compiled
def plain_records(
    view: memoryview, at: int, limit: int, position: int, count_max: int
) -> PlainRecords:
    """Columns of up to `count_max` records from `at` on, whose position in the log is `position`.

    Ends in front of bytes that are no whole record before `limit`, of a record without a queue
    entry, one of a delay level, one whose tag is not ASCII, and one whose queue offset does not
    follow the one before it here.
    """
    groups: dict[tuple[bytes, int], tuple[int, list[bytes]]] = {}
    facts: RecordFacts = [], [], [], [], []
    positions, sizes, topics, texts, times = facts
    count = 0
    while count < count_max:
        record = decode_partly(view, at, limit, position, True)
        if record is None or not has_entry(record[3]):
            break
        size, queue_id, offset, _, stored_ms, topic, properties = record
        if topic == SCHEDULE_TOPIC or not (property_value(properties, b"TAGS") or b"").isascii():
            break
        first, entries = groups.setdefault((topic, queue_id), (offset, []))
        if offset != first + len(entries):
            break
        entries.append(ENTRY.pack(position, size, tag_code(properties)))
        positions.append(position)
        sizes.append(size)
        topics.append(topic)
        texts.append(properties)
        times.append(stored_ms)
        count, at, position = count + 1, at + size, position + size
    rows = [(*name, first, b"".join(entries)) for name, (first, entries) in groups.items()]
    return count, position, rows, facts


def entry_groups(rows: Sequence[tuple[bytes, int, int, bytes]]) -> list[EntryGroup]:
    """The groups of `plain_records`."""
    return [EntryGroup(*row) for row in rows]
