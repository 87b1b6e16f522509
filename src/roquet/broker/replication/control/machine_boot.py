"""Machine boot: whether the machine was lost since the last run, and with it the log's tail.

A process that is killed loses nothing that it has appended: the system writes it later. A machine
that loses its power loses what was not flushed. A broker acknowledges what it has appended, so
after that it may lack messages that were acknowledged because of it. The file bootId beside the
store's checkpoint names the boot of the machine in which the log was whole. A broker that lacks a
part notes that instead, so that neither a kill nor a stop makes it forget.

    boot id              the log was whole in this boot
    boot id, " flushed"  and all of it that was acknowledged is on the disk
    "log lacks a part"   acknowledged messages may be missing

With sync_flush and replica_ack=flushed nothing is lost with the power. What the settings were in
the run before only the file knows: they may be others now, or have changed while that run lasted.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.model.errors import StoreError
from roquet.rules.replication.acknowledgement import ReplicaAck
from roquet.store.filesystem.files import Files
from roquet.store.store import Store

FILE_NAME: Final = "bootId"

ABORT: Final = "abort"
"""File of a store that was not closed."""

UNKNOWN: Final = ""
"""Boot id on systems that do not tell it: after each unclean stop the machine may have been
lost."""

LACKING: Final = "log lacks a part"
"""Content of the file in place of a boot id, until the log has all again."""

FLUSHED: Final = " flushed"
"""End of the content: whatever this broker has acknowledged is on its disk."""

LOG: Final = "commitlog"
"""Directory of the log, in that of the store."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def machine_boot_id() -> str:
    """Id of the machine's boot, on Linux; `UNKNOWN` elsewhere."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return UNKNOWN


def acknowledges_flushed(config: BrokerConfig) -> bool:
    """Whether this broker acknowledges only what is on its disk, as master and as replica."""
    return config.sync_flush and config.replica_ack is ReplicaAck.FLUSHED


class BootNote:
    """Note of one run, in the file bootId."""

    def __init__(self, files: Files, directory: Path, boot_id: str) -> None:
        self._files = files
        self._directory = directory
        self._boot_id = boot_id
        self._content: str | None = None
        """Content of the file; None: there is none."""

    @property
    def is_whole(self) -> bool:
        """Whether it says that the log has all that was appended."""
        return self._content is not None and self._content != LACKING

    @property
    def is_flushed(self) -> bool:
        """Whether it says that all that was acknowledged is on the disk."""
        return self._content is not None and self._content.endswith(FLUSHED)

    def begin(
        self, *, is_flushed: bool = False, is_trusted: bool = False, has_identity: bool = False
    ) -> bool:
        """Whether the log has all that was appended before; notes that, and the current boot.

        With `is_flushed` only what is on the disk is acknowledged from now on; whether it was so
        before, the file says. A log that is trusted counts as whole whatever was noted. A broker
        that has an identity was a member of its group: without a log its directory was emptied.
        Call it before the store is opened. Raises StoreError.
        """
        self._content = self._read()
        was_closed = ABORT not in self._files.list(self._directory)
        was_flushed = was_closed or self.is_flushed
        known_boot = (self._content or UNKNOWN).removesuffix(FLUSHED)
        has_lost_nothing = was_flushed or known_boot == self._boot_id != UNKNOWN
        has_log = bool(self._files.list(self._directory / LOG))
        was_emptied = has_identity and self._content is None and not has_log
        is_lacking = self._content == LACKING or was_emptied or not has_lost_nothing
        if is_lacking and not is_trusted:
            self._write(LACKING)
        else:
            self._write(self._boot_id + (FLUSHED if is_flushed and was_flushed else ""))
        return self.is_whole

    def note_whole(self) -> None:
        """Note that the log has all again. Raises StoreError."""
        self._write(self._boot_id)

    def note_appended(self) -> None:
        """Note that messages may be acknowledged that are in memory alone. Raises StoreError."""
        if self.is_flushed:
            self._write(self._boot_id)

    def note_flushed(self) -> None:
        """Note that all that was acknowledged is on the disk, and will be. Raises StoreError."""
        if self.is_whole:
            self._write(self._boot_id + FLUSHED)

    def note_failed(self) -> None:
        """Note that the disk may have dropped what was in memory. Raises StoreError."""
        if not self.is_flushed:
            self._write(LACKING)

    def _read(self) -> str | None:
        try:
            return self._files.read(self._directory / FILE_NAME).decode("ascii", "replace")
        except FileNotFoundError:
            return None

    def _write(self, content: str) -> None:
        if content != self._content:
            self._files.replace(self._directory / FILE_NAME, content.encode())
            self._content = content


class FlushedNote:
    """Keeps the note of a run true while its settings change.

    It says that all is on the disk only once that is so, and takes it back before messages are
    acknowledged that are in memory alone.
    """

    def __init__(self, note: BootNote, settings: RuntimeSettings, store: Store) -> None:
        self._note = note
        self._settings = settings
        self._store = store
        self._since: int | None = None
        """End of the log when only what is on the disk was acknowledged for the first time."""
        self.note_if_flushed()

    def fault(self, _before: BrokerConfig, after: BrokerConfig) -> str | None:
        """Why settings cannot be in force: a full disk does not take the note that they need."""
        if acknowledges_flushed(after):
            return None
        self._since = None
        try:
            self._note.note_appended()
        except StoreError as error:
            return f"the file {FILE_NAME} does not take that less is flushed from now on: {error}"
        return None

    def note_if_flushed(self) -> None:
        """Note that all is on the disk, once it is; tried again after each flush."""
        if self._note.is_flushed:
            return
        if not self._note.is_whole or not acknowledges_flushed(self._settings.config):
            self._since = None
            return
        end = self._store.raw.end
        self._since = end if self._since is None else min(self._since, end)
        if self._store.flushed_position >= self._since:
            with suppress(StoreError):
                self._note.note_flushed()
