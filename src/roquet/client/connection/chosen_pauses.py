"""Chosen pauses: a user's own backoff, and the default where it fails."""

from roquet.client.config import Backoff
from roquet.log_records import logger
from roquet.rules.backoff import chosen_pause_ms

log = logger(__name__)


class ChosenPauses:
    """Pauses that a user's function chooses."""

    def __init__(self, backoff: Backoff | None) -> None:
        self._backoff = backoff
        self._is_said = False

    def pause_ms(self, attempt: int, error: BaseException | None) -> int | None:
        """Pause in ms after so many failed attempts; None where the default applies.

        It applies without a function, and where that raises or returns no pause: said once.
        """
        if self._backoff is None:
            return None
        try:
            chosen = self._backoff(attempt, error)
        except Exception as fault:
            problem = f"raised {fault!r:.200}"
        else:
            if (pause_ms := chosen_pause_ms(chosen)) is not None:
                return pause_ms
            problem = f"returned {chosen!r:.100}, not a timedelta or seconds from 0 to a day"
        if not self._is_said:
            self._is_said = True
            log.warning(
                "backoff %s: the default pause applies to such cases, this is said once", problem
            )
        return None
