"""IdentityFile: a broker's id in its group, kept in brokerIdentity; an application in another file.

brokerIdentity         cluster#name#id              the controller has confirmed the id
brokerIdentity-temp    cluster#name#id#checkCode    the id that is being applied for

The check code, `address;millis`, lets a broker that died during its application repeat it. Source:
Apache RocketMQ 5.5.0, BrokerMetadata and TempBrokerMetadata.
"""

import re
from pathlib import Path
from typing import Final

import msgspec

from roquet.model.errors import FieldError, StoreError
from roquet.store.filesystem.directory_lock import store_errors
from roquet.store.filesystem.files import Files, RealFiles, read_if_exists

SEPARATOR: Final = "#"

_ID: Final = re.compile(r"[0-9]{1,19}")


class BrokerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's place in its group."""

    cluster: str
    broker_name: str
    broker_id: int
    """1 or more."""
    check_code: str | None = None
    """Of an application for the id; None once the controller has confirmed it."""

    def text(self) -> str:
        """Content of the file; raises FieldError for a name that would make it ambiguous."""
        parts = [self.cluster, self.broker_name, str(self.broker_id)]
        if self.check_code is not None:
            parts.append(self.check_code)
        if not all(parts) or any(SEPARATOR in part for part in parts):
            raise FieldError(f"names of a replicated broker may not be empty or have {SEPARATOR!r}")
        return SEPARATOR.join(parts)


def decode_identity(text: str) -> BrokerIdentity:
    """Decode the content of either file; raises FieldError if it is damaged."""
    parts = text.split(SEPARATOR)
    if len(parts) not in (3, 4) or not all(parts) or not _ID.fullmatch(parts[2]):
        raise FieldError(f"broker identity {text[:80]!r} is not `cluster#name#id`")
    check_code = parts[3] if len(parts) == 4 else None
    return BrokerIdentity(
        cluster=parts[0], broker_name=parts[1], broker_id=int(parts[2]), check_code=check_code
    )


def check_code(address: str, now_ms: int) -> str:
    """Check code of an application that begins now."""
    return f"{address};{now_ms}"


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
        with store_errors(self.path.parent):
            self._files.sync(self.path.parent)
