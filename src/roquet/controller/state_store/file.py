"""FileStore: groups in a file of one controller, which a lock keeps from a second one.

    {"format":1,"crc32":…}       a line about the rest
    {"bc":{…},"bd":{…}}          groups by broker name

The file is replaced as a whole: written beside the old one, brought to the disk, renamed. So after
a kill or a loss of power at any moment it has the old or the new content. The controller that holds
the directory always leads. After a write that failed the file is read again; the term ends unless
it has the old content.
"""

import asyncio
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from roquet.controller.state_store.interface import (
    ControllerIdentity,
    LeadershipLost,
    LeadershipView,
    StateStoreError,
    StoredGroup,
)
from roquet.model.errors import StoreError
from roquet.rules.election.group import ReplicaGroup
from roquet.store.filesystem.files import Files, RealFiles

FILE: Final = "controller.json"
LOCK: Final = "lock"

FORMAT: Final = 1


class FileHeader(msgspec.Struct, frozen=True):
    """First line of the file."""

    format: int
    crc32: int
    """Of all bytes after the first line."""


class FileStore:
    """Groups in `controller.json` of a directory.

    Raises StoreLocked if another process holds the directory, StoreError if the file is damaged.
    """

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self._files = files or RealFiles()
        self._path = directory / FILE
        self._lock = self._files.lock(directory / LOCK, "another controller")
        try:
            self._groups = self._read()
        except BaseException:
            self._lock.release()
            raise
        self._revisions = dict.fromkeys(self._groups, 1)
        self._term = 1
        self._writing = asyncio.Lock()

    async def acquire(
        self, identity: ControllerIdentity, *, in_new_term: bool = False
    ) -> LeadershipView:
        """See StateStore."""
        async with self._writing:
            self._term += in_new_term
            return LeadershipView(term=self._term, leader=identity, peers=(identity,))

    async def load(self, term: int) -> Mapping[str, StoredGroup]:
        """See StateStore."""
        async with self._writing:
            self._check(term)
            return {
                name: StoredGroup(group, self._revisions[name])
                for name, group in self._groups.items()
            }

    async def save(self, term: int, name: str, group: ReplicaGroup, revision: int) -> int:
        """See StateStore."""
        async with self._writing:
            self._check(term)
            if revision != self._revisions.get(name, 0):
                raise LeadershipLost(f"group {name!r} was changed by somebody else")
            groups = {**self._groups, name: group}
            try:
                await asyncio.to_thread(self._files.replace, self._path, encode_groups(groups))
            except StoreError as error:
                raise await asyncio.to_thread(self._failed, error) from error
            self._groups = groups
            self._revisions[name] = revision + 1
            return revision + 1

    async def confirm(self, term: int) -> None:
        """See StateStore."""
        self._check(term)

    async def close(self) -> None:
        """See StateStore. A write that is under way ends first: it would replace a later one."""
        async with self._writing:
            self._term += 1
            self._lock.release()

    def _check(self, term: int) -> None:
        if term != self._term:
            raise LeadershipLost("the term is over: a write of the state had failed")

    def _failed(self, error: StoreError) -> StateStoreError:
        """The error for a write that failed: definite if the file has the old content."""
        try:
            groups = self._read()
        except StoreError:
            self._term += 1
            return StateStoreError(str(error), definite=False)
        is_unchanged = groups == self._groups
        if not is_unchanged:
            self._term += 1
            self._groups = groups
            self._revisions = {name: self._revisions.get(name, 0) + 1 for name in groups}
        return StateStoreError(str(error), definite=is_unchanged)

    def _read(self) -> dict[str, ReplicaGroup]:
        try:
            data = self._files.read(self._path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(f"{self._path} cannot be read: {error.strerror}") from error
        try:
            return decode_groups(data)
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise StoreError(
                f"{self._path} is damaged ({error}): restore it from a copy; if there is none, move"
                " it away, and after the start clean each group that is reported as outdated"
            ) from error


def encode_groups(groups: Mapping[str, ReplicaGroup]) -> bytes:
    """The file's content."""
    body = msgspec.json.encode(groups)
    header = FileHeader(format=FORMAT, crc32=zlib.crc32(body))
    return msgspec.json.encode(header) + b"\n" + body


def decode_groups(data: bytes) -> dict[str, ReplicaGroup]:
    """Groups from the file's content; ValueError or MsgspecError for one that is damaged."""
    first, _, body = data.partition(b"\n")
    header = msgspec.json.decode(first, type=FileHeader)
    if header.format != FORMAT:
        raise ValueError(f"format {header.format}, known is {FORMAT}")
    if zlib.crc32(body) != header.crc32:
        raise ValueError(f"the checksum of {len(body)} bytes is wrong")
    return msgspec.json.decode(body, type=dict[str, ReplicaGroup])
