"""AccessUsers: the users and policies of a name server or controller, from a file of its operator.

These servers have no requests that change users: copy an export of a broker, or edit the file. It
is read again when it changes. Apache's name servers and controllers check nobody.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from roquet.access.guard import AccessGuard, AccessRules
from roquet.access.secret_files import warn_of_readers
from roquet.access.translation import decode_document, tables_of
from roquet.log_records import logger
from roquet.model.access import AccessTables
from roquet.model.errors import ConfigError, FieldError

log = logger(__name__)

RELOAD_MS: Final = 5_000
"""Ms between two looks at the file."""


class AccessUsers:
    """Users and policies of one server."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ConfigError for one that cannot be used, or has no user."""
        self._path = path
        self._data = b""
        self._fault = ""
        self.tables = AccessTables()
        """In force now."""
        self._read()
        warn_of_readers(path)

    def guard(
        self, cluster: str, now_ms: Callable[[], int], *, certificate_users: bool = False
    ) -> AccessGuard:
        """A guard over these users; `certificate_users`: clients' certificates name users, too."""
        rules = AccessRules(
            cluster=cluster, checks_policies=True, certificate_users=certificate_users
        )
        return AccessGuard(lambda: self.tables, rules, now_ms)

    def reload(self, _now_ms: int) -> None:
        """Take over a changed file; one that is gone or broken changes nothing, and is logged."""
        try:
            is_changed = self._read()
        except ConfigError as error:
            if str(error) != self._fault:
                log.warning("users and policies stay as they were: %s", error)
            self._fault = str(error)
            return
        self._fault = ""
        if is_changed:
            log.info("users and policies are read again from %s", self._path)

    def _read(self) -> bool:
        """Take over the file; returns whether it has changed. Raises ConfigError."""
        try:
            data = self._path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be read: {error.strerror}") from error
        if data == self._data:
            return False
        try:
            tables = tables_of(decode_document(data))
        except FieldError as error:
            raise ConfigError(f"{self._path} cannot be used: {error}; mend it") from error
        if not tables.users:
            raise ConfigError(f"{self._path}: there is no user in it, so nobody could ask anything")
        self._data, self.tables = data, tables
        return True
