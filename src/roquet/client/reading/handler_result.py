"""Outcome: what a handler returned or raised, and what that means for its message."""

import inspect
from typing import Final

from roquet.client.reading.message import ReceivedMessage
from roquet.log_records import logger
from roquet.model.errors import UsageError

log = logger(__name__)


class HandlerError:
    """What a handler raised, told from what it returned."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


SKIPPED: Final = object()
"""The outcome of a message whose queue was given away before its turn came."""


ALREADY_SETTLED: Final = object()
"""The outcome of a message that was told by its own methods how it went."""


class HandlerResults:
    """What handlers return should be nothing."""

    def __init__(self) -> None:
        self._is_said = False

    def settle(self, message: ReceivedMessage, result: object) -> None:
        """Something was returned: what might mean a failure is one, all else is said once."""
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            fail_message(
                message, UsageError("the handler returned a coroutine: make it an `async def`")
            )
        elif result is False:
            fail_message(
                message, UsageError("the handler returned False: raise, or nack the message")
            )
        else:
            if not self._is_said:
                self._is_said = True
                log.warning(
                    "the handler returned %.80r, which has no meaning: returning means handled, "
                    "raising or `nack` means that the message comes again",
                    result,
                )
            message.settle()


def fail_message(message: ReceivedMessage, error: BaseException) -> None:
    """A handler raised: say so; what becomes of the message is logged once that is known."""
    log.warning(
        "the handler failed on %r (try %d): %r",
        message, message.tries + 1, error,
        exc_info=error if message.tries == 0 else None,
    )  # fmt: skip
    message.fail()
