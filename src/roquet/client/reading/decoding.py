"""Decoding: makes values of the bodies of a consumer's messages, before anybody gets them.

A body that cannot be decoded makes its message a dead letter at once, with the reason: another try
would fail as well. Where there are no dead letters, when broadcasting and in a PullConsumer, reads
hand the message out and its `value` raises; `run` logs it and goes on. A passing fault, such as a
schema registry that cannot be reached, lets the message come again as a handler's exception does.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeAlias

from roquet.client.arguments import check_plain_function
from roquet.client.reading.handler_contexts import adapt_handler
from roquet.client.reading.handler_pool import MessageHandler
from roquet.client.reading.handler_result import fail_message
from roquet.client.reading.inbox import Inbox
from roquet.client.reading.message import InboundMessage, M
from roquet.client.reading.message_batch import MessageBatch
from roquet.log_records import logger
from roquet.model.errors import BodyError, CodecMissing
from roquet.rules.consumption.dead_letter_reason import error_reason, is_of_the_message

log = logger(__name__)

DecodeFunction: TypeAlias = Callable[[bytes], Any]
"""Makes a value of a body; called in the handler's thread, if that is a plain `def`."""


class BodyDecoder:
    """One consumer's `decode`."""

    undecodable = 0
    """Number of bodies that could not be decoded; that of a message counts at each of its tries."""

    def __init__(self, decode: DecodeFunction) -> None:
        self._decode = check_plain_function(decode, "decode", "the body")

    def value_of(self, message: InboundMessage[Any]) -> Any:
        """Decode the message's body. Raises BodyError when that can never be done."""
        try:
            return self._decode(message.body)
        except (KeyboardInterrupt, SystemExit, CodecMissing):  # of this program
            raise
        except BaseException as error:  # decoders in Rust panic with a BaseException
            if not is_of_the_message(error):
                raise
            self.undecodable += message.undecodable is None
            message.undecodable = error_reason(error)
            text = f"the body of {message!r} cannot be decoded: {message.undecodable}"
            raise BodyError(text) from error


READ_BODY: Final = attrgetter("body")
READ_VALUE: Final = attrgetter("value")


def read_for_handler(
    handler: MessageHandler[Any], read: Callable[[Any], object]
) -> MessageHandler[Any]:
    """Wrap a handler, so that it gets only messages that `read` can read; it raises for others.

    From a batch those are left out, and fail when it is settled.
    """

    def readable(taken: Any) -> Any:
        if isinstance(taken, MessageBatch):
            return taken.leave_out(read)
        read(taken)
        return taken

    return adapt_handler(handler, readable)


class DecodedInbox(Inbox[M]):
    """Messages of an inbox that are decoded when they are read."""

    def __init__(self, inbox: Inbox[M], decoder: BodyDecoder, *, has_dead_letters: bool) -> None:
        super().__init__()
        self._source = inbox
        self._decoder = decoder
        self._has_dead_letters = has_dead_letters

    def pop(self) -> M | None:
        """Return the next message to hand out; None when there is none now."""
        while (message := self._source.pop()) is not None:
            if self._is_handed_out(message):
                return message
        return None

    async def take(self) -> M | None:
        """Wait for the next message to hand out; None once the inbox is closed."""
        while (message := await self._source.take()) is not None:
            if self._is_handed_out(message):
                return message
        return None

    def _is_handed_out(self, message: M) -> bool:
        """Decode a message; False when it goes to the dead letters, or comes again."""
        try:
            READ_VALUE(message)
        except Exception as error:
            if self._has_dead_letters:
                fail_message(message, error)
                return False
            log.error("%r is handed out without a value: %r", message, error)  # noqa: TRY400
        except BaseException:
            self._source.put_back([message])
            raise
        return True
