"""LocalOffsets: the progress of a broadcasting member, in a file of its own.

Every member of a broadcasting group gets every message, so no broker keeps its progress. The file
is written as Java's is: {"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:5}}
"""

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from roquet.client.config import ConsumerConfig
from roquet.client.connection.session import Session
from roquet.client.reading.offsets import GroupOffsets
from roquet.log_records import logger
from roquet.model.errors import ConfigError, FieldError, RoquetError, StoreError, UsageError
from roquet.model.queue import MessageQueue
from roquet.store.filesystem.directory_lock import DirectoryLock
from roquet.store.filesystem.files import RealFiles
from roquet.wire.fastjson import codec

log = logger(__name__)

SHARED_INSTANCE: Final = "DEFAULT"
"""The name of a member that was given none: the same after each start, as in Java."""


class OffsetFile(msgspec.Struct, frozen=True, rename="camel"):
    """What the file holds."""

    offset_table: dict[MessageQueue, int] = {}
    topic_ids: dict[MessageQueue, str] | None = None
    """Of which topic of its name each offset is (rules.topic_id); Java passes it over."""


def state_folder(platform: str, environ: Mapping[str, str]) -> Path:
    """Where this user's programs keep what they must remember, by the platform's custom."""
    if platform == "win32" and (local := environ.get("LOCALAPPDATA")):
        return Path(local) / "roquet"
    if home := environ.get("HOME") or environ.get("USERPROFILE"):
        if platform == "darwin":
            return Path(home) / "Library" / "Application Support" / "roquet"
        return Path(environ.get("XDG_STATE_HOME") or f"{home}/.local/state") / "roquet"
    raise ConfigError("offsets_dir: this user has no home folder, so say where progress is kept")


class LocalOffsets(GroupOffsets):
    """One member's progress, and the bounds of queues."""

    def __init__(self, session: Session, config: ConsumerConfig, group: str, folder: Path) -> None:
        super().__init__(session, config, group)
        self._files = RealFiles()
        self._path = folder / (config.instance or SHARED_INSTANCE) / group / "offsets.json"
        self._table: dict[MessageQueue, int] = {}
        self._ids: dict[MessageQueue, str] = {}
        self._is_new = False
        self._lock: DirectoryLock | None = None

    def open(self) -> None:
        """Read the file; UsageError when another member on this machine works with it."""
        lock = self._path.with_name("lock")
        try:
            self._lock = self._files.lock(lock, "another consumer")
        except StoreError as error:
            raise UsageError(
                f"broadcast progress cannot be kept in {self._path.parent} ({error}): "
                "give each member of the group on one machine an `instance` of its own"
            ) from error
        found = _read(self._path)
        self._table, self._ids = dict(found.offset_table), dict(found.topic_ids or {})

    def close(self) -> None:
        """Leave the file to others."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    async def committed(self, queue: MessageQueue) -> int | None:
        """The progress in the file."""
        self._heard[queue] = self._ids.get(queue)
        return self._table.get(queue)

    async def begin(self, queue: MessageQueue) -> int:
        """Where to read on; progress of before topics had ids is taken for the topic's that is."""
        offset = await super().begin(queue)
        if queue not in self.topic_ids:
            with contextlib.suppress(RoquetError):
                await self.first(queue)
                self._know(queue)
        return offset

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Save progress now."""
        await self.tell(queue, offset)
        self.flush()

    async def tell(self, queue: MessageQueue, offset: int) -> None:
        """Note progress, to be saved at the next flush."""
        topic_id = self.topic_ids.get(queue)
        if self._table.get(queue) != offset or self._ids.get(queue) != topic_id:
            self._table[queue] = offset
            self._ids.pop(queue, None)
            if topic_id is not None:
                self._ids[queue] = topic_id
            self._is_new = True

    def flush(self) -> None:
        """Save what was noted."""
        if self._is_new:
            self._is_new = False
            self._write()

    def _write(self) -> None:
        data = codec.dumps(OffsetFile(self._table, self._ids or None), pretty=True)
        try:
            self._files.replace(self._path, data, keep=True)
        except StoreError as error:
            self._is_new = True
            log.warning("broadcast progress is not saved yet: %s", error)


def _read(path: Path) -> OffsetFile:
    """The progress in a file, or in the one before it when that one is damaged; none if new."""
    for one in (path, path.with_name(path.name + ".bak")):
        with contextlib.suppress(FileNotFoundError):
            try:
                return codec.loads(one.read_bytes(), OffsetFile)
            except FieldError as error:
                log.warning("%s cannot be read: %s", one, error)
    return OffsetFile()


def offsets_folder(config: ConsumerConfig, environ: Mapping[str, str]) -> Path:
    """Where broadcast progress is kept."""
    if config.offsets_dir is not None:
        return Path(config.offsets_dir).expanduser()
    return state_folder(sys.platform, environ) / "offsets"
