"""ReloadedTls: a server's TLS context, made anew when its files change.

    cert, key, authority ──read──▶ changed? ──▶ all load and fit ──▶ context of the next connection
                                                  │
                                                  └─ no: the old context stays, and the log says so

Open connections go on with what they began with.
"""

import ssl
from pathlib import Path
from typing import Final

from roquet.log_records import logger
from roquet.model.errors import ConfigError
from roquet.net.tls import ServerTls, TlsMode

log = logger(__name__)

RELOAD_MS: Final = 1_000
"""Ms between two looks at the files."""


class ReloadedTls:
    """The TLS context in force of one server or of several."""

    def __init__(self, settings: ServerTls) -> None:
        """Read the files. Raises ConfigError for one that cannot be used."""
        self.settings = settings
        self._content = self._read()
        self.context: ssl.SSLContext = settings.context()
        """For new connections."""

    @property
    def mode(self) -> TlsMode:
        """Which connections are taken."""
        return self.settings.mode

    def reload(self, _now_ms: int) -> None:
        """Take over changed files; files that are gone, torn or do not fit change nothing."""
        content = self._read()
        if content == self._content:
            return
        self._content = content  # read before it is loaded: a change in between is seen next time
        try:
            self.context = self.settings.context()
        except ConfigError as error:
            log.warning("the certificate in force stays, since the changed files fail: %s", error)
        else:
            log.warning("new connections get the changed certificate in %s", self.settings.cert)

    def _read(self) -> tuple[bytes | None, ...]:
        """Content of each file; None for one that cannot be read."""
        return tuple(map(_content, self.settings.files))


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None
