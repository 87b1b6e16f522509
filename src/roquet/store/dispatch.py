"""Dispatch: follows the log and feeds the queues and the index.

Queue entries are written with the record, and again from the log after a crash; the key index is
written behind the log, many records at a time: from what the writer has just had in hands or,
where that does not reach, from the log itself.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from operator import add, ne
from typing import Final

from roquet.model.flags import TRANSACTION_MASK, SysFlag
from roquet.store.commitlog import FRESH_MAX, CommitLog, Fresh
from roquet.store.hasher import KeyHasher
from roquet.store.index import KeyIndex
from roquet.wire.skim import Skimmed, index_keys, index_keys_of_all, key_columns

_FRESH_LATE: Final = FRESH_MAX // 4
"""So many in hands, and the index is late: what falls out of them costs a second reading."""

_LATE_COUNT: Final = 1024
"""Records that it then takes in one go, some 2 ms."""

_COLUMNS_MIN: Final = 16
"""Records from which on their keys are looked at character by character."""

_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)

Key = tuple[int, int, int]
"""Hash, position of the record, store time."""

Columns = tuple[Sequence[int], Sequence[int], Sequence[bytes], Sequence[bytes], Sequence[int]]
"""Positions, sizes, topics, properties and store times of records."""


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

    def hash_of(self, topic: bytes, key: bytes) -> int:
        """The hash by which a key of a topic is found."""
        return self._hash(topic, key)

    def step(self, count_max: int) -> int:
        """Index up to so many records, or more when late; gives how many were looked at."""
        end = self._log.end
        if self.position >= end:
            return 0
        fresh = self._log.fresh
        if len(fresh) > _FRESH_LATE and fresh[0][0] <= self.position:
            count_max = max(count_max, _LATE_COUNT)
        position, left = max(self.position, self._log.begin), count_max
        keys: list[Key] = []
        while position < end and left:
            position, left = self._follow(position, left, keys)
            if position < end and left:
                position, left = self._walk(position, left, keys)
        done = self._index.put_many(keys)
        if done < len(keys):
            position = self._known_until = keys[done][1]
        self.position = position
        return count_max - left if done == len(keys) else 0

    def _follow(self, position: int, left: int, keys: list[Key]) -> tuple[int, int]:
        """Take what was written from a position on, as far as that is still in hands.

        Gives what was reached, and how many more may be looked at.
        """
        fresh = self._log.fresh
        while fresh and fresh[0][0] < position:
            fresh.popleft()
        if position <= self._known_until:
            return position, left
        while left and fresh and fresh[0][0] == position:
            positions, sizes, topics, texts, times = _taken(fresh, left)
            position = positions[-1] + sizes[-1]
            left -= len(positions)
            keys += self._keys(positions, topics, texts, times)
        return position, left

    def _keys(
        self,
        positions: Sequence[int],
        topics: Sequence[bytes],
        texts: Sequence[bytes],
        times: Sequence[int],
    ) -> Iterator[Key]:
        """What the index has to know of several records."""
        topic, count = topics[0], len(topics)
        if count >= _COLUMNS_MIN and topics.count(topic) == count and (found := key_columns(texts)):
            return zip(self._hash.of_columns(topic, found), positions, times, strict=True)
        owners, keys = index_keys_of_all(texts)
        hashes = self._hash.of_all([topics[owner] for owner in owners], keys)
        return (
            (key_hash, positions[owner], times[owner])
            for key_hash, owner in zip(hashes, owners, strict=True)
        )

    def _walk(self, position: int, left: int, keys: list[Key]) -> tuple[int, int]:
        """Read the log from a position on, up to what is in hands; gives the same."""
        fresh, end = self._log.fresh, self._log.end
        stop = fresh[0][0] if fresh and fresh[0][0] > position else end
        for _, at, found in self._log.walk(position, stop, end, check_crc=False):
            if not left:
                return at, 0
            left -= 1
            self._collect(at, found, keys)
        return stop, left

    def _collect(self, position: int, found: Skimmed, keys: list[Key]) -> None:
        """Add what the index has to know of a record."""
        _, _, _, sys_flag, stored_ms, topic, properties = found
        if sys_flag & TRANSACTION_MASK == _ROLLBACK:
            return
        for key in index_keys(properties):
            key_hash = self._hash(topic, key)
            if position > self._known_until or not self._is_known(key_hash, position):
                keys.append((key_hash, position, stored_ms))

    def _is_known(self, key_hash: int, position: int) -> bool:
        return any(found == position for found in self._index.find(key_hash, 0))


def _taken(fresh: deque[Fresh], count_max: int) -> Columns:
    """The first records, so many at most, each of which begins where the one before it ends."""
    run = [fresh.popleft() for _ in range(min(count_max, len(fresh)))]
    positions, sizes, topics, texts, times = zip(*run, strict=True)
    is_gap = list(map(ne, map(add, positions, sizes), positions[1:]))
    if True not in is_gap:
        return positions, sizes, topics, texts, times
    end = is_gap.index(True) + 1
    fresh.extendleft(reversed(run[end:]))
    return positions[:end], sizes[:end], topics[:end], texts[:end], times[:end]
