"""Dispatch: follows the log and feeds the queues and the index.

Queue entries are written with the record, and again from the log after a crash; the key index is
always written from the log, behind it, many records at a time.
"""

from typing import Final

from roquet.model.flags import TRANSACTION_MASK, SysFlag
from roquet.store.commitlog import CommitLog
from roquet.store.index import KeyIndex
from roquet.wire.java import hash_code, hash_units
from roquet.wire.property_text import decode_text
from roquet.wire.skim import Skimmed, index_keys

_ENDING_SIZE: Final = 8
"""Characters at the end of a key that differ from one message of a client to the next."""

_CACHED_MAX: Final = 4096
"""Beginnings of keys whose hashes are kept: about one per client and minute."""

_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
_MASK: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000


class KeyHasher:
    """Java's hash of `topic#key`, made not negative as index files have it.

    Keys of a client begin alike, so the hash of the beginning is remembered, and only the last
    characters are added.
    """

    def __init__(self) -> None:
        self._beginnings: dict[bytes, int] = {}

    def __call__(self, topic: bytes, key: bytes) -> int:
        """The hash by which a key of a topic is found."""
        text = topic + b"#" + key
        if not text.isascii():
            return abs(hash_code(decode_text(text))) & ~_SIGN
        beginning, ending = text[:-_ENDING_SIZE], text[-_ENDING_SIZE:]
        known = self._beginnings.get(beginning)
        if known is None:
            known = self._remember(beginning)
        if len(ending) < _ENDING_SIZE:
            ending = ending.rjust(_ENDING_SIZE, b"\x00")
        a, b, c, d, e, f, g, h = ending
        tail = ((((((a * 31 + b) * 31 + c) * 31 + d) * 31 + e) * 31 + f) * 31 + g) * 31 + h
        unsigned = (known + tail) & _MASK
        # Of the least number there is no absolute value: it counts as 0.
        return unsigned if unsigned < _SIGN else -unsigned & _MASK & ~_SIGN

    def _remember(self, beginning: bytes) -> int:
        if len(self._beginnings) >= _CACHED_MAX:
            self._beginnings.clear()
        known = self._beginnings[beginning] = hash_units(beginning) * 31**_ENDING_SIZE
        return known


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
        """Index up to so many records; gives how many were looked at."""
        end = self._log.end
        if self.position >= end:
            return 0
        count, begin = 0, max(self.position, self._log.begin)
        keys: list[tuple[int, int, int]] = []
        position, stop = begin, end
        for _, position, found in self._log.walk(begin, end, end, check_crc=False):
            if count == count_max:
                stop = position
                break
            count += 1
            self._collect(position, found, keys)
        done = self._index.put_many(keys)
        if done < len(keys):
            stop, self._known_until = keys[done][1], keys[done][1]
        self.position = stop
        return count if done == len(keys) else 0

    def _collect(self, position: int, found: Skimmed, keys: list[tuple[int, int, int]]) -> None:
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
