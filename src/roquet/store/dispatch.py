"""Dispatch: follows the log and feeds the queues and the index.

Queue entries are written with the record, and again from the log after a crash; the key index is
written behind the log, many records at a time: from what the writer has just had in hands or,
where that does not reach, from the log itself.
"""

from typing import Final, TypeVar

from roquet.model.flags import TRANSACTION_MASK, SysFlag
from roquet.store.commitlog import FRESH_MAX, CommitLog
from roquet.store.index import KeyIndex
from roquet.wire.java import hash_code, hash_units
from roquet.wire.property_text import decode_text
from roquet.wire.skim import Skimmed, index_keys

_ENDING_SIZE: Final = 2
"""Characters at the end of a key that are added each time: they count a client's messages."""

_MIDDLE_SIZE: Final = 6
"""So many in front of them say the millisecond too, and what is before stays for a minute."""

_CACHED_MAX: Final = 4096
"""Beginnings of keys whose hashes are kept: about one per client and millisecond or minute."""

_FRESH_LATE: Final = FRESH_MAX // 4
"""So many in hands, and the index is late: what falls out of them costs a second reading."""

_LATE_COUNT: Final = 1024
"""Records that it then takes in one go, some 2 ms."""

_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
_MASK: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000
_POSITIVE: Final = 0x7FFF_FFFF


Text = TypeVar("Text", bytes, tuple[bytes, bytes])

Key = tuple[int, int, int]
"""Hash, position of the record, store time."""


class KeyHasher:
    """Java's hash of `topic#key`, made not negative as index files have it.

    Keys of a client begin alike, so the hash of the beginning is remembered, and only the last
    characters are added; that of its own beginning as well, which changes less often.
    """

    def __init__(self) -> None:
        self._beginnings: dict[tuple[bytes, bytes], int] = {}
        """By topic and all of a key but its last characters, which are ASCII and not empty."""
        self._stems: dict[bytes, int] = {}

    def __call__(self, topic: bytes, key: bytes) -> int:
        """The hash by which a key of a topic is found."""
        known = self._beginnings.get((topic, key[:-_ENDING_SIZE]))
        if known is None or not key.isascii():
            return self._anew(topic, key)
        a, b = key[-_ENDING_SIZE:]
        unsigned = (known + a * 31 + b) & _MASK
        # Of the least number there is no absolute value: it counts as 0.
        return unsigned if unsigned < _SIGN else -unsigned & _POSITIVE

    def _anew(self, topic: bytes, key: bytes) -> int:
        text = topic + b"#" + key
        if not text.isascii():
            return abs(hash_code(decode_text(text))) & _POSITIVE
        if len(key) <= _ENDING_SIZE:
            return abs(hash_units(text)) & _POSITIVE
        beginning = text[:-_ENDING_SIZE]
        stem, middle = beginning[:-_MIDDLE_SIZE], beginning[-_MIDDLE_SIZE:]
        before = self._stems.get(stem)
        if before is None:
            before = _keep(self._stems, stem, hash_units(stem) * 31 ** len(middle))
        known = (before + hash_units(middle)) * 31**_ENDING_SIZE
        _keep(self._beginnings, (topic, key[:-_ENDING_SIZE]), known)
        return self(topic, key)


def _keep(known: dict[Text, int], text: Text, hashed: int) -> int:
    """Remember the hash of a text, moved to the left of what will follow."""
    if len(known) >= _CACHED_MAX:
        known.clear()
    moved = known[text] = hashed & _MASK
    return moved


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
        fresh, hash_of = self._log.fresh, self._hash
        while fresh and fresh[0][0] < position:
            fresh.popleft()
        if position <= self._known_until:
            return position, left
        while left and fresh and fresh[0][0] == position:
            _, size, topic, properties, stored_ms = fresh.popleft()
            for key in index_keys(properties):
                keys += ((hash_of(topic, key), position, stored_ms),)
            position += size
            left -= 1
        return position, left

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
