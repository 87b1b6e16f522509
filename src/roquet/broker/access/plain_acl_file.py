"""PlainAclFile: the accounts of `plain_acl.yml` of Apache RocketMQ 4, read again when it changes.

The file stays its operator's: nothing is written to it.
"""

from pathlib import Path

from roquet.access.secret_files import warn_of_readers
from roquet.log_records import logger
from roquet.model.access import AccessTables
from roquet.model.errors import ConfigError, FieldError
from roquet.rules.access.changes import AccessChangeRefused
from roquet.rules.access.plain_acl import migrate
from roquet.wire.plain_acl import decode_plain_acl

log = logger(__name__)


class PlainAclFile:
    """One file, whose accounts are users of a broker."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content: bytes | None = None
        """Bytes that were taken over last."""
        self._seen: bytes | None = None
        """Bytes at the last look."""

    def read(self) -> AccessTables:
        """Users and policies of the file; what has no equal is logged. Raises ConfigError."""
        warn_of_readers(self._path)
        return self._taken(self._bytes())

    def changed(self) -> AccessTables | None:
        """Users and policies, if the file is not the one that was read last. Raises ConfigError.

        A change counts once two looks in a row see it: half a file may be YAML as well, without the
        lines that deny something.
        """
        data = self._bytes()
        seen, self._seen = self._seen, data
        return None if data == self._content or data != seen else self._taken(data)

    def _bytes(self) -> bytes:
        try:
            return self._path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be read: {error.strerror}") from error

    def _taken(self, data: bytes) -> AccessTables:
        try:
            migrated = migrate(decode_plain_acl(data))
        except (FieldError, AccessChangeRefused) as error:
            raise ConfigError(f"{self._path} cannot be used: {error}; mend it") from error
        log.info("%d users are read from %s", len(migrated.tables.users), self._path)
        for note in migrated.notes:
            log.warning("%s: %s", self._path, note)
        self._content = data
        return migrated.tables
