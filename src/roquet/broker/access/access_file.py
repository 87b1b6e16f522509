"""AccessFile: users and policies in one readable file, `config/access.json`.

It is JSON in the form that `roquet acl export` writes. The protocol's signatures need the passwords
in clear, so the file is private to its owner (mode 0600). It is replaced atomically, without a
backup: a deleted user must not come back from one.
"""

from pathlib import Path
from typing import Final

from roquet.access.translation import decode_document, encode_document, tables_of
from roquet.model.access import AccessTables
from roquet.model.errors import FieldError, StoreError
from roquet.store.filesystem.directory_lock import store_error
from roquet.store.filesystem.files import Files

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
