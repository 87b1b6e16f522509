"""LocalOffsets: the committed offsets of a broadcasting member, in a file.

Every member of a broadcasting group gets every message, so brokers keep no offsets for it. The file
has Java's format: {"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:5}}
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
"""Default instance name of a broadcasting member: the same after each start, as in Java."""


class OffsetFile(msgspec.Struct, frozen=True, rename="camel"):
    """Content of the file."""

    offset_table: dict[MessageQueue, int] = {}
    topic_ids: dict[MessageQueue, str] | None = None
    """The topic id that each offset belongs to (rules.topic_id); Java ignores it."""


def state_folder(platform: str, environ: Mapping[str, str]) -> Path:
    """The user's folder for application state; ConfigError for a user without a home folder."""
    if platform == "win32" and (local := environ.get("LOCALAPPDATA")):
        return Path(local) / "roquet"
    if home := environ.get("HOME") or environ.get("USERPROFILE"):
        if platform == "darwin":
            return Path(home) / "Library" / "Application Support" / "roquet"
        return Path(environ.get("XDG_STATE_HOME") or f"{home}/.local/state") / "roquet"
    raise ConfigError("offsets_dir: this user has no home folder, so it has to be set")


class LocalOffsets(GroupOffsets):
    """One member's committed offsets, and the offset range of queues."""

    def __init__(
        self,
        session: Session,
        config: ConsumerConfig,
        group: str,
        folder: Path,
        *,
        commits_starts: bool = False,
    ) -> None:
        super().__init__(session, config, group, commits_starts=commits_starts)
        self._files = RealFiles()
        self._path = folder / (config.instance or SHARED_INSTANCE) / group / "offsets.json"
        self._table: dict[MessageQueue, int] = {}
        self._ids: dict[MessageQueue, str] = {}
        self._is_new = False
        self._lock: DirectoryLock | None = None

    def open(self) -> None:
        """Lock and read the file; UsageError when another member on this machine uses it."""
        lock = self._path.with_name("lock")
        try:
            self._lock = self._files.lock(lock, "another consumer")
        except StoreError as error:
            raise UsageError(
                f"broadcast progress cannot be kept in {self._path.parent} ({error}): "
                "give each member of the group on one machine an `instance` of its own"
            ) from error
        stored = _read(self._path)
        self._table, self._ids = dict(stored.offset_table), dict(stored.topic_ids or {})

    def close(self) -> None:
        """Release the file's lock."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    async def committed(
        self, queue: MessageQueue, *, zero_if_young: bool | None = None
    ) -> int | None:
        """The offset in the file; None when there is none."""
        del zero_if_young
        self._latest_topic_ids[queue] = self._ids.get(queue)
        return self._table.get(queue)

    async def start_offset(self, queue: MessageQueue) -> int:
        """Find the offset to start at; one without a topic id counts for the current topic."""
        offset = await super().start_offset(queue)
        if queue not in self.topic_ids:
            with contextlib.suppress(RoquetError):
                await self.min_offset(queue)
                self._adopt_topic_id(queue)
        return offset

    async def _commit_start(self, queue: MessageQueue, offset: int) -> None:
        await self.commit_nowait(queue, offset)  # flushed with the others

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Write an offset to the file now."""
        await self.commit_nowait(queue, offset)
        self.flush()

    async def commit_nowait(self, queue: MessageQueue, offset: int) -> None:
        """Note an offset, to be written by the next flush."""
        topic_id = self.topic_ids.get(queue)
        if self._table.get(queue) != offset or self._ids.get(queue) != topic_id:
            self._table[queue] = offset
            self._ids.pop(queue, None)
            if topic_id is not None:
                self._ids[queue] = topic_id
            self._is_new = True

    def flush(self) -> None:
        """Write noted offsets to the file."""
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
    """Read the file, or its backup if it is damaged; empty when neither exists."""
    for file in (path, path.with_name(path.name + ".bak")):
        with contextlib.suppress(FileNotFoundError):
            try:
                return codec.loads(file.read_bytes(), OffsetFile)
            except FieldError as error:
                log.warning("%s cannot be read: %s", file, error)
    return OffsetFile()


def offsets_folder(config: ConsumerConfig, environ: Mapping[str, str]) -> Path:
    """The folder of broadcast offsets."""
    if config.offsets_dir is not None:
        return Path(config.offsets_dir).expanduser()
    return state_folder(sys.platform, environ) / "offsets"
