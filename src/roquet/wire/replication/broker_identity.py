"""Broker identity: the files brokerIdentity and brokerIdentity-temp of a broker with a controller.

    cluster#name#id                   the id that the controller gave, for good
    cluster#name#id#checkCode         the id that is being applied for

The check code, `address;millis`, lets a broker that died during its application repeat it. Source:
Apache RocketMQ 5.5.0, BrokerMetadata and TempBrokerMetadata.
"""

import re
from typing import Final

import msgspec

from roquet.model.errors import FieldError

SEPARATOR: Final = "#"

_ID: Final = re.compile(r"[0-9]{1,19}")


class BrokerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's place in its group."""

    cluster: str
    broker_name: str
    broker_id: int
    """1 or more."""
    check_code: str | None = None
    """Of an application for the id; None once the controller has confirmed it."""

    def text(self) -> str:
        """Content of the file; raises FieldError for a name that would make it ambiguous."""
        parts = [self.cluster, self.broker_name, str(self.broker_id)]
        if self.check_code is not None:
            parts.append(self.check_code)
        if not all(parts) or any(SEPARATOR in part for part in parts):
            raise FieldError(f"names of a replicated broker may not be empty or have {SEPARATOR!r}")
        return SEPARATOR.join(parts)


def decode_identity(text: str) -> BrokerIdentity:
    """Decode the content of either file; raises FieldError if it is damaged."""
    parts = text.split(SEPARATOR)
    if len(parts) not in (3, 4) or not all(parts) or not _ID.fullmatch(parts[2]):
        raise FieldError(f"broker identity {text[:80]!r} is not `cluster#name#id`")
    check_code = parts[3] if len(parts) == 4 else None
    return BrokerIdentity(
        cluster=parts[0], broker_name=parts[1], broker_id=int(parts[2]), check_code=check_code
    )


def check_code(address: str, now_ms: int) -> str:
    """Check code of an application that begins now."""
    return f"{address};{now_ms}"
