"""Dispatch: follows the log and feeds the queues and the index.

Queue entries are written with the record, and again from the log after a crash; the key index is
written behind the log, many records at a time: from what the writer has just had in hands or,
where that does not reach, from the log itself.
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
"""One of so many that are in hands is taken in one go: the later the index is, the more, since what
falls out of them costs a second reading."""

_COLUMNS_MIN: Final = 16
"""Records from which on their keys are looked at character by character."""

_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)

IndexKeys = tuple[list[int], list[int], list[int]]
"""Hashes of keys, positions of their records, store times."""


class Dispatcher:
    """Feeds the index with what the log holds in front of its end."""

    def __init__(self, commit_log: CommitLog, index: KeyIndex, position: int) -> None:
        self._log = commit_log
        self._index = index
        self._hash = KeyHasher()
        self.position = position
        """The index lacks nothing in front of it."""
        self._known_until = index.end_position if index.files else -1
        """Some keys of records up to this one may be there already."""
        self.on_failure: Callable[[int, Exception], object] = _log_failure
        """Told of a record that cannot be indexed, by its position, and why; it is passed over."""

    def hash_of(self, topic: bytes, key: bytes) -> int:
        """The hash by which a key of a topic is found."""
        return self._hash(topic, key)

    def step(self, count_max: int) -> int:
        """Index up to so many records, or more when late; gives how many were looked at.

        One that cannot be indexed is told to `on_failure`, and the next ones are.
        """
        try:
            return self._step(count_max)
        except (StoreError, OSError, MemoryError):
            raise
        except Exception:
            return self._step_one()

    def restart(self) -> None:
        """Go on where the index ends: files of it were dropped."""
        self.position = max(self._index.end_position, self._log.begin)
        self._known_until = self._index.end_position if self._index.files else -1

    def reindex(self, position: int) -> None:
        """Index the record at a position once more, if there is one."""
        if (found := self._first(position)) is not None and found[0] == position:
            self._put_one(*found)

    def _step_one(self) -> int:
        """Index the next record alone, or pass it over."""
        found = self._first(max(self.position, self._log.begin))
        if found is None:
            self.position = self._log.end
            return 0
        position, facts = found
        try:
            is_done = self._put_one(position, facts)
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
        return next(((at, found) for _, at, found in walk), None)

    def _put_one(self, position: int, found: PartialRecord) -> bool:
        """Index one record; False: there is no room for its keys yet."""
        keys: IndexKeys = [], [], []
        self._collect(position, found, keys)
        return self._index.put_many(*keys) == len(keys[0])

    def _step(self, count_max: int) -> int:
        end = self._log.end
        if self.position >= end:
            return 0
        fresh = self._log.fresh
        if fresh.begin <= self.position:
            count_max = max(count_max, len(fresh) // _SHARE)
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
        """Take what was written from a position on, as far as that is still in hands.

        Gives what was reached, and how many more may be looked at.
        """
        fresh = self._log.fresh
        fresh.drop_before(position)
        if position <= self._known_until:
            return position, left
        while left and fresh.begin == position:
            positions, sizes, topics, texts, times = fresh.take(left)
            position = positions[-1] + sizes[-1]
            left -= len(positions)
            found, owners = self._hashes(topics, texts)
            keys[0].extend(found)
            keys[1].extend(positions if owners is None else [positions[owner] for owner in owners])
            keys[2].extend(times if owners is None else [times[owner] for owner in owners])
        return position, left

    def _hashes(
        self, topics: Sequence[bytes], texts: Sequence[bytes]
    ) -> tuple[list[int], Sequence[int] | None]:
        """Hashes of the keys of several records, and whose each is; None: one each, in order."""
        topic, count = topics[0], len(topics)
        if count >= _COLUMNS_MIN and topics.count(topic) == count and (found := key_columns(texts)):
            return self._hash.of_columns(topic, found), None
        owners, keys = index_keys_of_all(texts)
        return self._hash.of_all([topics[owner] for owner in owners], keys), owners

    def _walk(self, position: int, left: int, keys: IndexKeys) -> tuple[int, int]:
        """Read the log from a position on, up to what is in hands; gives the same."""
        fresh, end = self._log.fresh, self._log.end
        stop = fresh.begin if fresh.begin > position else end
        for _, at, found in self._log.walk(position, stop, end, check_crc=False):
            if not left:
                return at, 0
            left -= 1
            self._collect(at, found, keys)
        return stop, left

    def _collect(self, position: int, found: PartialRecord, keys: IndexKeys) -> None:
        """Add what the index has to know of a record."""
        _, _, _, sys_flag, stored_ms, topic, properties = found
        if sys_flag & TRANSACTION_MASK == _ROLLBACK:
            return
        for key in index_keys(properties):
            key_hash = self._hash(topic, key)
            if position > self._known_until or not self._is_known(key_hash, position):
                for column, value in zip(keys, (key_hash, position, stored_ms), strict=True):
                    column.append(value)

    def _is_known(self, key_hash: int, position: int) -> bool:
        return any(found == position for found in self._index.find(key_hash, 0))


def _log_failure(position: int, error: Exception) -> None:
    log.error("the record at %d cannot be found by its keys: %r", position, error)
