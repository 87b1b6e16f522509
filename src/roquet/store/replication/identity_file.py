"""IdentityFile: a broker's id in its group, kept in brokerIdentity; an application in another file.

brokerIdentity         the id that the controller has confirmed
brokerIdentity-temp    the id that is being applied for, until it is confirmed
"""

from pathlib import Path
from typing import Final

from roquet.model.errors import FieldError, StoreError
from roquet.store.filesystem.directory_lock import store_error
from roquet.store.filesystem.files import Files, RealFiles, read_if_exists
from roquet.wire.replication.broker_identity import BrokerIdentity, decode_identity

FILE_NAME: Final = "brokerIdentity"
APPLICATION_SUFFIX: Final = "-temp"


class IdentityFile:
    """One of the two files. The path is the setting storePathBrokerIdentity."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self.path = path
        self._files = files or RealFiles()

    def application(self) -> "IdentityFile":
        """The file beside this one that holds an application for an id."""
        return IdentityFile(self.path.with_name(self.path.name + APPLICATION_SUFFIX), self._files)

    def load(self) -> BrokerIdentity | None:
        """The identity; None if there is no file. Raises StoreError for a damaged one."""
        if (data := read_if_exists(self._files, self.path)) is None:
            return None
        try:
            return decode_identity(data.decode())
        except (FieldError, UnicodeDecodeError) as error:
            raise StoreError(
                f"{self.path} cannot be read ({error}): write `cluster#name#id` into it, with the"
                " id that the controller knows this broker by"
            ) from error

    def save(self, identity: BrokerIdentity) -> None:
        """Write the identity, durably. Raises StoreError; FieldError for an impossible name."""
        self._files.replace(self.path, identity.text().encode())

    def remove(self) -> None:
        """Delete the file, durably; a missing one is no error. Raises StoreError."""
        self._files.remove(self.path)
        try:
            self._files.sync(self.path.parent)
        except OSError as error:
            raise store_error(self.path.parent, error) from error
