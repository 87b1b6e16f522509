"""Access files: users and policies in `config/access.json`, and accounts in `plain_acl.yml`.

The first is JSON in the form that `roquet acl export` writes. The protocol's signatures need the
passwords in clear, so the file is private to its owner (mode 0600). It is replaced atomically,
without a backup: a deleted user must not come back from one. The file of Apache RocketMQ 4 stays
its operator's: nothing is written to it.
"""

from pathlib import Path
from typing import Final

from roquet.access.secret_files import warn_of_readers
from roquet.access.translation import decode_document, encode_document, tables_of
from roquet.log_records import logger
from roquet.model.access import AccessTables
from roquet.model.errors import ConfigError, FieldError, StoreError
from roquet.rules.access.changes import AccessChangeRefused
from roquet.rules.access.plain_acl import migrate
from roquet.store.filesystem.directory_lock import store_error
from roquet.store.filesystem.files import Files
from roquet.wire.plain_acl import decode_plain_acl

log = logger(__name__)

FILE_NAME: Final = "access.json"


class AccessFile:
    """The file of one broker."""

    def __init__(self, files: Files, path: Path) -> None:
        self.path = path
        self._files = files
        self._content: bytes | None = None
        """Bytes that were read or written last."""

    def read(self) -> AccessTables | None:
        """The content; None if there is no file. Raises StoreError for one that cannot be used."""
        data = self._read()
        if data is None:
            return None
        tables = self._tables_of(data)
        self._content = data
        return tables

    def changed(self) -> AccessTables | None:
        """The content, if somebody else has written it since it was read or written here.

        Raises StoreError for content that cannot be used, or that would lock everybody out; a file
        that is gone is no change.
        """
        data = self._read()
        if data is None or data == self._content:
            return None
        if not (tables := self._tables_of(data)).users:
            raise StoreError(f"{self.path} has no user in it: nobody could do anything; mend it")
        self._content = data
        return tables

    def write(self, tables: AccessTables) -> None:
        """Replace the content. Raises StoreError."""
        data = encode_document(tables)
        self._files.replace(self.path, data)
        self._content = data

    def _read(self) -> bytes | None:
        try:
            return self._files.read(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise store_error(self.path, error) from error

    def _tables_of(self, data: bytes) -> AccessTables:
        try:
            return tables_of(decode_document(data))
        except FieldError as error:
            raise StoreError(f"{self.path} cannot be used: {error}; mend it") from error


class PlainAclFile:
    """A `plain_acl.yml`, whose accounts are users of a broker; read again when it changes."""

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
