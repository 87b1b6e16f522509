"""Unreadable messages: what becomes of those whose body cannot be decompressed here."""

from typing import Any

from roquet.client import CodecMissing, ReceivedMessage, RecordError
from roquet.client.reading.handler_result import fail_message
from roquet.log_records import logger

log = logger(__name__)


async def readable_body(message: ReceivedMessage[Any]) -> bytes | None:
    """The message's body; None if it cannot be read, and then the message is settled.

    A damaged one becomes a dead letter. One whose compression needs a package that is missing here
    comes again, and the try does not count.
    """
    try:
        return message.body
    except CodecMissing as error:
        fail_message(message, error)
    except RecordError as error:
        log.warning("%r cannot be read and is given up: %s", message, error)
        await message.dead_letter(str(error))
    return None
