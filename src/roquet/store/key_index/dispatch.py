"""Dispatcher: follows the log and feeds the key index.

Queue entries are written together with the record. The key index is written later, many records at
a time: from the log's buffer of unindexed records or, where that does not reach, from the log
itself.
"""

from array import array
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from roquet.log_records import logger
from roquet.model.errors import StoreError
from roquet.model.flags import TRANSACTION_MASK, SysFlag
from roquet.store.commit_log.log import CommitLog
from roquet.store.commit_log.unindexed_buffer import HashedRun, RecordFacts
from roquet.store.key_index.index import KeyIndex
from roquet.wire.java_hash import hash_code
from roquet.wire.records.partial_decode import PartialRecord, index_keys
from roquet.wire.records.property_text import readable_text
from roquet.wire.records.speedups import compiled

_POSITIVE: Final = 0x7FFF_FFFF
"""Mask of a negated hash; the least number has no absolute value and becomes 0."""

HashedKeys = tuple[list[int], list[int]]
"""Hashes of keys, and the index of each key's record."""


def hash_key(topic: bytes, key: bytes) -> int:
    """The hash of one key of a topic; invalid UTF-8 is decoded as Java does."""
    return abs(hash_code(readable_text(topic + b"#" + key))) & _POSITIVE


def hash_keys(topics: Sequence[bytes], texts: Sequence[bytes]) -> HashedKeys:
    """Hashes of the keys of several records, given their topics and encoded properties."""
    return key_hashes(topics, texts, hash_key)


@compiled
def key_hashes(
    topics: Sequence[bytes], texts: Sequence[bytes], hash_of: Callable[[bytes, bytes], int]
) -> HashedKeys:
    """Hashes of the keys of several records, each computed by `hash_of`."""
    hashes: list[int] = []
    owners: list[int] = []
    for owner, (topic, text) in enumerate(zip(topics, texts, strict=True)):
        for key in index_keys(text):
            hashes.append(hash_of(topic, key))
            owners.append(owner)
    return hashes, owners


log = logger(__name__)

_SHARE: Final = 2
"""A step takes half of the buffered records at least: a late index takes more at a time, since
records that leave the buffer have to be read again."""

STEP_MAX: Final = 8_192
"""Records of one step at most: others wait meanwhile, 10 ms or, without a compiler, 50."""

KEYS_MAX: Final = 4_096
"""Keys of one step, in some milliseconds, but for those of the last records taken: a message may
have sixteen thousand."""

HASH_COUNT: Final = 64
"""Buffered records whose keys are hashed together, before they are counted."""

WALK_BYTES: Final = 16 * 1024
"""Bytes of properties of one step that are read from the log, but for the last record's."""

_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)

IndexKeys = tuple["array[int]", "array[int]", "array[int]"]
"""Hashes of keys, positions of their records, store times: numbers of 4, 8 and 8 bytes."""


def _no_keys() -> IndexKeys:
    return array("i"), array("q"), array("q")


class Dispatcher:
    """Feeds the key index with the records in front of the log's end."""

    def __init__(self, commit_log: CommitLog, index: KeyIndex, position: int) -> None:
        self._log = commit_log
        self._index = index
        self.position = position
        """All records in front of it are indexed."""
        self._known_until = index.end_position if index.files else -1
        """Some keys of records up to this position may be indexed already."""
        self.on_failure: Callable[[int, Exception], object] = _log_failure
        """Called with the position of a record that cannot be indexed, and the reason; the record
        is skipped."""

    def step(self, count_max: int) -> int:
        """Index up to `count_max` records, or more when late; gives how many were examined.

        Records of a batch may be more: their keys are taken together.
        It ends early after records with very many keys, and gives `count_max` then.
        A record that cannot be indexed is reported to `on_failure`; the others are indexed.
        """
        try:
            return self._step(count_max)
        except (StoreError, OSError, MemoryError):
            raise
        except Exception:
            return self._step_one()

    def restart(self) -> None:
        """Continue where the index ends: some of its files were dropped."""
        self.position = max(self._index.end_position, self._log.begin)
        self._known_until = self._index.end_position if self._index.files else -1

    def reindex(self, position: int) -> None:
        """Index the record at a position again, if there is one."""
        if (first := self._first(position)) is not None and first[0] == position:
            self._index_one(*first)

    def _step_one(self) -> int:
        first = self._first(max(self.position, self._log.begin))
        if first is None:
            self.position = self._log.dispatched
            return 0
        position, facts = first
        try:
            is_done = self._index_one(position, facts)
        except (StoreError, OSError, MemoryError):
            raise
        except Exception as error:
            self.on_failure(position, error)
            is_done = True
        if not is_done:
            return 0
        self.position = position + facts[0]
        return 1

    def _first(self, position: int) -> tuple[int, PartialRecord] | None:
        end = self._log.dispatched
        walk = self._log.walk(position, end, end, check_crc=False)
        return next(((at, record) for _, at, record in walk), None)

    def _index_one(self, position: int, record: PartialRecord) -> bool:
        """Index one record; False if the index has no room for its keys yet."""
        keys = _no_keys()
        self._collect([(position, record)], keys)
        return self._index.put_many(*keys) == len(keys[0])

    def _step(self, count_max: int) -> int:
        end = self._log.dispatched
        if self.position >= end:
            return 0
        buffer = self._log.unindexed
        if buffer.begin <= self.position:
            count_max = max(count_max, min(len(buffer) // _SHARE, STEP_MAX))
        position, left = max(self.position, self._log.begin), count_max
        keys = _no_keys()
        while position < end and left > 0:
            position, left = self._follow(position, left, keys)
            if position < end and left > 0:
                position, left = self._walk(position, left, keys)
        hashes, positions, _ = keys
        done = self._index.put_many(*keys)
        if done < len(hashes):
            position = self._known_until = positions[done]
        self.position = position
        return count_max - left if done == len(hashes) else 0

    def _follow(self, position: int, left: int, keys: IndexKeys) -> tuple[int, int]:
        """Take buffered records from a position on.

        Gives the position reached, and how many more records may be examined: a negative number
        when a batch was larger.
        """
        buffer = self._log.unindexed
        buffer.drop_before(position)
        if position <= self._known_until:
            return position, left
        while left > 0 and buffer.begin == position:
            if (run := buffer.take_hashed(position)) is not None:
                position += run.size
                left = left - run.count if _add_hashed(run, keys) else 0
                continue
            facts = buffer.first(left)
            done = _hash(facts, keys)
            position = facts[0][done - 1] + facts[1][done - 1]
            buffer.drop(done)
            left = left - done if done == len(facts[0]) else 0
        return position, left

    def _walk(self, position: int, left: int, keys: IndexKeys) -> tuple[int, int]:
        """Read the log from a position on, up to the buffer.

        Gives the position reached, and how many more records may be examined.
        """
        buffer, end = self._log.unindexed, self._log.dispatched
        stop = buffer.begin if buffer.begin > position else end
        walk = self._log.walk(position, stop, end, check_crc=False)
        records, size = list[tuple[int, PartialRecord]](), 0
        for _, at, record in islice(walk, left):
            records.append((at, record))
            size += len(record[6])
            if size >= WALK_BYTES:
                break
        self._collect(records, keys)
        if len(records) < left and size < WALK_BYTES:
            return stop, left - len(records)
        last, record = records[-1]
        return last + record[0], 0

    def _collect(self, records: Sequence[tuple[int, PartialRecord]], keys: IndexKeys) -> None:
        kept = [
            (position, record)
            for position, record in records
            if record[3] & TRANSACTION_MASK != _ROLLBACK
        ]
        topics, texts = [record[5] for _, record in kept], [record[6] for _, record in kept]
        for key_hash, owner in zip(*hash_keys(topics, texts), strict=True):
            position, record = kept[owner]
            if position > self._known_until or not self._is_known(key_hash, position):
                for column, value in zip(keys, (key_hash, position, record[4]), strict=True):
                    column.append(value)

    def _is_known(self, key_hash: int, position: int) -> bool:
        return any(indexed == position for indexed in self._index.find(key_hash, 0))


def _hash(facts: RecordFacts, keys: IndexKeys) -> int:
    """Add the keys of buffered records until they are many; gives how many records were done."""
    positions, _, topics, texts, times = facts
    for start in range(0, len(positions), HASH_COUNT):
        stop = start + HASH_COUNT
        hashes, owners = hash_keys(topics[start:stop], texts[start:stop])
        keys[0].extend(hashes)
        keys[1].extend([positions[start + owner] for owner in owners])
        keys[2].extend([times[start + owner] for owner in owners])
        if len(keys[0]) >= KEYS_MAX:
            return min(stop, len(positions))
    return len(positions)


def _add_hashed(run: HashedRun, keys: IndexKeys) -> bool:
    """Add the keys of a run; False when there are many then."""
    keys[0].frombytes(run.hashes)
    keys[1].frombytes(run.positions)
    keys[2].extend(array("q", [run.stored_ms]) * (len(keys[0]) - len(keys[2])))
    return len(keys[0]) < KEYS_MAX


def _log_failure(position: int, error: Exception) -> None:
    log.error("the record at %d cannot be found by its keys: %r", position, error)
