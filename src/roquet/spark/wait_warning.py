"""Wait warning: a log line when a server has not answered for two seconds, and one when it does."""

from typing import Final

from roquet.log_records import logger

log = logger(__name__)

WARN_AFTER_MS: Final = 2_000
"""A wait that is worth a line: a broker that changes its role is back sooner."""


class WaitWarning:
    """The lines about one wait; times are those of a monotonic clock."""

    __slots__ = ("_is_logged", "_since_ms", "_timeout_ms")

    def __init__(self, now_ms: int, timeout_ms: int) -> None:
        self._since_ms = now_ms
        self._timeout_ms = timeout_ms
        self._is_logged = False

    def failed(self, now_ms: int, who: object, why: object) -> None:
        """Log the first failure that comes late enough; the text names how long is waited."""
        log.debug("%s: %s; trying again", who, why)
        if not self._is_logged and now_ms - self._since_ms >= WARN_AFTER_MS:
            self._is_logged = True
            seconds = self._timeout_ms / 1000
            log.warning("%s: %s; waiting up to %g s for it (option timeout)", who, why, seconds)

    def ended(self, now_ms: int, who: object) -> None:
        """Log the end of a wait that was logged."""
        if self._is_logged:
            log.warning("%s answers again after %.1f s", who, (now_ms - self._since_ms) / 1000)
