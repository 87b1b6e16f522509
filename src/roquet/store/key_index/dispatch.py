"""Dispatcher: follows the log and feeds the key index.

Queue entries are written together with the record. The key index is written later, many records at
a time: from the log's buffer of unindexed records or, where that does not reach, from the log
itself.
"""

from collections.abc import Callable, Sequence
from typing import Final

from roquet.log_records import logger
from roquet.model.errors import StoreError
from roquet.model.flags import TRANSACTION_MASK, SysFlag
from roquet.store.commit_log.log import CommitLog
from roquet.store.key_index.hasher import KeyHasher
from roquet.store.key_index.index import KeyIndex
from roquet.wire.records.partial_decode import (
    PartialRecord,
    index_keys,
    index_keys_of_all,
    key_columns,
)

log = logger(__name__)

_SHARE: Final = 2
"""A step takes half of the buffered records at least: a late index takes more at a time, since
records that leave the buffer have to be read again."""

_COLUMNS_MIN: Final = 16
"""Records from which keys are hashed column by column."""

_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)

IndexKeys = tuple[list[int], list[int], list[int]]
"""Hashes of keys, positions of their records, store times."""


class Dispatcher:
    """Feeds the key index with the records in front of the log's end."""

    def __init__(self, commit_log: CommitLog, index: KeyIndex, position: int) -> None:
        self._log = commit_log
        self._index = index
        self._hash = KeyHasher()
        self.position = position
        """All records in front of it are indexed."""
        self._known_until = index.end_position if index.files else -1
        """Some keys of records up to this position may be indexed already."""
        self.on_failure: Callable[[int, Exception], object] = _log_failure
        """Called with the position of a record that cannot be indexed, and the reason; the record
        is skipped."""

    def hash_of(self, topic: bytes, key: bytes) -> int:
        """The hash of a key of a topic."""
        return self._hash(topic, key)

    def step(self, count_max: int) -> int:
        """Index up to `count_max` records, or more when late; gives how many were examined.

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
        """Index the next record alone, or skip it."""
        first = self._first(max(self.position, self._log.begin))
        if first is None:
            self.position = self._log.end
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
        """The first record from a position on, and where it begins."""
        end = self._log.end
        walk = self._log.walk(position, end, end, check_crc=False)
        return next(((at, record) for _, at, record in walk), None)

    def _index_one(self, position: int, record: PartialRecord) -> bool:
        """Index one record; False if the index has no room for its keys yet."""
        keys: IndexKeys = [], [], []
        self._collect(position, record, keys)
        return self._index.put_many(*keys) == len(keys[0])

    def _step(self, count_max: int) -> int:
        end = self._log.end
        if self.position >= end:
            return 0
        buffer = self._log.unindexed
        if buffer.begin <= self.position:
            count_max = max(count_max, len(buffer) // _SHARE)
        position, left = max(self.position, self._log.begin), count_max
        keys: IndexKeys = [], [], []
        while position < end and left:
            position, left = self._follow(position, left, keys)
            if position < end and left:
                position, left = self._walk(position, left, keys)
        hashes, positions, _ = keys
        done = self._index.put_many(*keys)
        if done < len(hashes):
            position = self._known_until = positions[done]
        self.position = position
        return count_max - left if done == len(hashes) else 0

    def _follow(self, position: int, left: int, keys: IndexKeys) -> tuple[int, int]:
        """Take buffered records from a position on.

        Gives the position reached, and how many more records may be examined.
        """
        buffer = self._log.unindexed
        buffer.drop_before(position)
        if position <= self._known_until:
            return position, left
        while left and buffer.begin == position:
            positions, sizes, topics, texts, times = buffer.take(left)
            position = positions[-1] + sizes[-1]
            left -= len(positions)
            hashes, owners = self._hashes(topics, texts)
            keys[0].extend(hashes)
            keys[1].extend(positions if owners is None else [positions[owner] for owner in owners])
            keys[2].extend(times if owners is None else [times[owner] for owner in owners])
        return position, left

    def _hashes(
        self, topics: Sequence[bytes], texts: Sequence[bytes]
    ) -> tuple[list[int], Sequence[int] | None]:
        """Hashes of the keys of several records, and the index of each key's record.

        None instead of indexes means one key for each record, in order.
        """
        topic, count = topics[0], len(topics)
        if (
            count >= _COLUMNS_MIN
            and topics.count(topic) == count
            and (columns := key_columns(texts))
        ):
            return self._hash.of_columns(topic, columns), None
        owners, keys = index_keys_of_all(texts)
        return self._hash.of_all([topics[owner] for owner in owners], keys), owners

    def _walk(self, position: int, left: int, keys: IndexKeys) -> tuple[int, int]:
        """Read the log from a position on, up to the buffer.

        Gives the position reached, and how many more records may be examined.
        """
        buffer, end = self._log.unindexed, self._log.end
        stop = buffer.begin if buffer.begin > position else end
        for _, at, record in self._log.walk(position, stop, end, check_crc=False):
            if not left:
                return at, 0
            left -= 1
            self._collect(at, record, keys)
        return stop, left

    def _collect(self, position: int, record: PartialRecord, keys: IndexKeys) -> None:
        """Add the keys of a record that are not indexed yet."""
        _, _, _, sys_flag, stored_ms, topic, properties = record
        if sys_flag & TRANSACTION_MASK == _ROLLBACK:
            return
        for key in index_keys(properties):
            key_hash = self._hash(topic, key)
            if position > self._known_until or not self._is_known(key_hash, position):
                for column, value in zip(keys, (key_hash, position, stored_ms), strict=True):
                    column.append(value)

    def _is_known(self, key_hash: int, position: int) -> bool:
        return any(indexed == position for indexed in self._index.find(key_hash, 0))


def _log_failure(position: int, error: Exception) -> None:
    log.error("the record at %d cannot be found by its keys: %r", position, error)
