"""Chosen pauses: a user's own backoff, and the default where it fails."""

from datetime import timedelta

from roquet.client.config import Backoff
from roquet.log_records import logger
from roquet.rules.backoff import chosen_pause_ms
from roquet.rules.consumption.dead_letter_reason import error_reason

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
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as fault:  # a cancelled future's, too: it must not end a worker
            problem = f"raised {error_reason(fault):.200}"
        else:
            if (pause_ms := chosen_pause_ms(chosen)) is not None:
                return pause_ms
            is_number = isinstance(chosen, int | float | timedelta)
            shown = repr(chosen)[:100] if is_number else f"a {type(chosen).__name__}"
            problem = f"returned {shown}, not a timedelta or seconds from 0 to a day"
        if not self._is_said:
            self._is_said = True
            log.warning(
                "backoff %s: the default pause applies to such cases, this is said once", problem
            )
        return None
