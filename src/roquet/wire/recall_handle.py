"""Recall handles: what a producer shows to take a message back before its time.

v1 topic broker deliverMs uniqueKey        in base64, with - and _ for + and /
"""

import binascii
from base64 import b64decode, urlsafe_b64encode
from typing import Final

import msgspec

from roquet.model.errors import FieldError

VERSION: Final = "v1"

TAG: Final = "_RECALL_TAG_"
"""The tag of the message that takes another back."""

_LONG_DIGITS_MAX: Final = 19


class RecallHandle(msgspec.Struct, frozen=True):
    """Which message, and where and until when it waits."""

    topic: str
    broker: str
    deliver_ms: int
    """-1 for a text that is no number."""
    unique_key: str

    def text(self) -> str:
        """As it travels."""
        plain = f"{VERSION} {self.topic} {self.broker} {self.deliver_ms} {self.unique_key}"
        return urlsafe_b64encode(plain.encode("utf-8", "surrogatepass")).decode("ascii")


def decode_recall_handle(text: str) -> RecallHandle:
    """The handle that a text holds; FieldError when it is none."""
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        plain = b64decode(padded, altchars=b"-_", validate=True).decode("utf-8")
    except (UnicodeError, binascii.Error):
        raise FieldError("recall handle is invalid") from None
    words = plain.split(" ")
    if words[0] != VERSION or len(words) < 5:
        raise FieldError("recall handle is invalid")
    _, topic, broker, moment, key = words[:5]
    known = moment.isascii() and moment.isdecimal() and len(moment) <= _LONG_DIGITS_MAX
    return RecallHandle(topic, broker, int(moment) if known else -1, key)
