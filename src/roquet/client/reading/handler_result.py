"""Handler result: settles a message by what its handler returned or raised."""

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from roquet.client.reading.message import ReceivedMessage, give_up, retry_later, settle
from roquet.log_records import logger
from roquet.model.errors import UsageError

log = logger(__name__)


class HandlerError:
    """A handler's exception, to distinguish it from a returned one."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


SKIPPED: Final = object()
"""Result of a message whose queue was revoked before its handler started."""


ALREADY_SETTLED: Final = object()
"""Result of a handler that has settled messages by their own methods, in a thread."""

RETURNED_FALSE: Final = "the handler returned False: raise, or nack the message"


def check_result(result: object) -> object:
    """Return a handler's result; UsageError for False, so that what is around the call sees it."""
    if result is False:
        raise UsageError(RETURNED_FALSE)
    return result


class HandlerResults:
    """Settles messages whose handlers returned something other than None.

    `abort_reads` is called with an error that each message would meet, and ends the run.
    """

    def __init__(self, abort_reads: Callable[[Exception], object] = repr) -> None:
        self._abort_reads = abort_reads
        self._is_said = False

    def settle(self, message: ReceivedMessage[Any], result: object) -> None:
        """Fail the message if the value looks like a failure; else settle it, and warn once."""
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            error = UsageError("the handler returned a coroutine: make it an `async def`")
            fail_message(message, error)
            self._abort_reads(error)
        elif result is False:
            fail_message(message, UsageError(RETURNED_FALSE))
        else:
            if not self._is_said:
                self._is_said = True
                log.warning(
                    "the handler returned %.80r, which has no meaning: returning means handled, "
                    "raising or `nack` means that the message comes again",
                    result,
                )
            settle(message)


def fail_message(message: ReceivedMessage[Any], error: BaseException) -> None:
    """Log a handler's exception and fail the message; the retry policy logs what follows.

    A message that cannot be decoded is given up at once; one that lacks a package waits for it.
    """
    if message.unreadable:
        log_unreadable(message.unreadable)
        retry_later(message)
        return
    if message.undecodable is not None:
        message.is_undecoded = True
        give_up(message, message.undecodable)
        return
    log.warning(
        "the handler failed on %r (try %d): %r",
        message, message.tries + 1, error,
        exc_info=error if message.tries == 0 else None,
    )  # fmt: skip
    retry_later(message, error=error)


@lru_cache
def log_unreadable(reason: str) -> None:
    """Log why messages wait: once in a process, as all of a compression meet the same."""
    log.error("messages come again until they can be read; this is said once: %s", reason)
