"""Transaction ids of the proxy: they say which half message of which broker is meant.

    broker · half message's offset in its queue · its position in the commit log · message id

So any proxy can end a transaction, at any time and after a restart. The genuine proxy knows only
those that it began itself, for 30 s.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Final

import msgspec

from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.wire.receipt_handle import LONG_MAX

_FIELDS: Final = 4


class TransactionId(msgspec.Struct, frozen=True):
    """One half message."""

    broker: str
    half_offset: int
    position: int
    message_id: str

    def text(self) -> str:
        """The id as text: base64 of the fields with U+0001 between them, which no name holds."""
        plain = f"{self.half_offset}\x01{self.position}\x01{self.message_id}\x01{self.broker}"
        return urlsafe_b64encode(plain.encode("utf-8", "surrogatepass")).decode("ascii")


def decode_transaction_id(text: str) -> TransactionId:
    """Decode a transaction id; raises ProxyRefusal for anything else."""
    try:
        plain = urlsafe_b64decode(text.encode("ascii")).decode("utf-8", "surrogatepass")
        half_offset, position, message_id, broker = plain.split("\x01", _FIELDS - 1)
        return TransactionId(broker, _number(half_offset), _number(position), message_id)
    except (Base64Error, ValueError):
        raise ProxyRefusal(
            StatusCode.INVALID_TRANSACTION_ID, f"no transaction has the id {text!r:.100}"
        ) from None


def _number(text: str) -> int:
    if not 0 <= (number := int(text)) <= LONG_MAX:
        raise ValueError(f"{number} is no offset")
    return number
