"""Signatures of RocketMQ 5's clients, which sign the time of a request and nothing else.

    authorization: MQv2-HMAC-SHA1 Credential=KEY/…, SignedHeaders=x-mq-date-time, Signature=HEX
    x-mq-date-time: 20261130T042351Z

A recorded header stays good, as with Apache's proxy: TLS is the remedy.
"""

from hashlib import sha1
from hmac import compare_digest, digest
from typing import Final

import msgspec

AUTHORIZATION: Final = "authorization"
DATE_TIME: Final = "x-mq-date-time"


class ClientSignature(msgspec.Struct, frozen=True):
    """Content of the header `authorization`."""

    access_key: str
    signature: str
    """Hexadecimal, in either case."""

    def is_by(self, secret: str, date_time: str) -> bool:
        """Whether the owner of this secret has signed a date."""
        made = digest(secret.encode(), date_time.encode(), sha1).hex()
        return compare_digest(made.encode(), self.signature.lower().encode())


def parse_authorization(header: str) -> ClientSignature:
    """Read the header; what it lacks is empty."""
    _scheme, _, rest = header.partition(" ")
    pairs = (part.strip().partition("=") for part in rest.split(","))
    fields = {name: value for name, _, value in pairs}
    access_key, _, _scope = fields.get("Credential", "").partition("/")
    return ClientSignature(access_key, fields.get("Signature", ""))


def authorization(access_key: str, secret: str, date_time: str) -> str:
    """The header by which a client signs."""
    made = digest(secret.encode(), date_time.encode(), sha1).hex()
    return f"MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders={DATE_TIME}, Signature={made}"
