"""Decoding: makes values of the bodies of a consumer's messages, before anybody gets them.

A body that cannot be decoded makes its message a dead letter at once, with the reason: another try
would fail as well. Where there are no dead letters, when broadcasting and in a PullConsumer, reads
hand the message out and its `value` raises; `run` logs it and goes on. A passing fault, such as a
schema registry that cannot be reached, lets the message come again as a handler's exception does.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from roquet.client.arguments import check_plain_function
from roquet.client.reading.handler_pool import MessageHandler
from roquet.client.reading.handler_result import fail_message
from roquet.client.reading.inbox import Inbox
from roquet.client.reading.message import InboundMessage, M
from roquet.client.reading.message_batch import MessageBatch, adapt_handler
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


def decode_for_handler(handler: MessageHandler[M]) -> MessageHandler[M]:
    """Wrap a handler, so that only messages with a value reach it; for others it raises."""
    return adapt_handler(handler, _with_value)


def decode_for_batch_handler(
    handler: MessageHandler[MessageBatch[M]],
) -> MessageHandler[MessageBatch[M]]:
    """Wrap a handler of batches, so that only messages with a value reach it."""
    return adapt_handler(handler, _without_failed)


def _with_value(message: M) -> M:
    _ = message.value
    return message


def _without_failed(batch: MessageBatch[M]) -> MessageBatch[M] | None:
    """Leave the messages with a value in a batch; None when there are none."""
    decoded, failed = list[M](), list[tuple[M, Exception]]()
    for message in batch.messages:
        try:
            decoded.append(_with_value(message))
        except Exception as error:
            failed.append((message, error))
    batch.messages, batch.failed = decoded, failed
    return batch if decoded else None


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

    def put_first(self, message: M) -> None:
        """Put a message that was taken before back to the front."""
        self._source.put_first(message)

    def _is_handed_out(self, message: M) -> bool:
        """Decode a message; False when it goes to the dead letters, or comes again."""
        try:
            _ = message.value
        except Exception as error:
            if self._has_dead_letters:
                fail_message(message, error)
                return False
            log.error("%r is handed out without a value: %r", message, error)  # noqa: TRY400
        except BaseException:
            self._source.put_back([message])
            raise
        return True
