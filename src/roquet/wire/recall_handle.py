"""Recall handles: identify a timer message, so that its producer can cancel it.

v1 topic broker deliverMs uniqueKey        in base64, with - and _ for + and /
"""

import binascii
from base64 import b64decode, urlsafe_b64encode
from typing import Final

import msgspec

from roquet.model.errors import FieldError

VERSION: Final = "v1"

TAG: Final = "_RECALL_TAG_"
"""Tag of the message that cancels another one."""

_LONG_DIGITS_MAX: Final = 19


class RecallHandle(msgspec.Struct, frozen=True):
    """The message to cancel, its broker and its delivery time."""

    topic: str
    broker: str
    deliver_ms: int
    """-1 for a text that is not a number."""
    unique_key: str

    def text(self) -> str:
        """The handle as text."""
        plain = f"{VERSION} {self.topic} {self.broker} {self.deliver_ms} {self.unique_key}"
        return urlsafe_b64encode(plain.encode("utf-8", "surrogatepass")).decode("ascii")


def decode_recall_handle(text: str) -> RecallHandle:
    """Decode a recall handle; raises FieldError for anything else."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        plain = b64decode(padded, altchars=b"-_", validate=True).decode("utf-8")
    except (UnicodeError, binascii.Error):
        raise FieldError("recall handle is invalid") from None
    fields = plain.split(" ")
    if fields[0] != VERSION or len(fields) < 5:
        raise FieldError("recall handle is invalid")
    _, topic, broker, time, key = fields[:5]
    is_number = time.isascii() and time.isdecimal() and len(time) <= _LONG_DIGITS_MAX
    return RecallHandle(topic, broker, int(time) if is_number else -1, key)
