"""Signing: requests with proof of their sender, for clusters with access control.

Each request carries an access key and a signature: HMAC-SHA1 with the secret key over the values of
all header fields, sorted by name, and the body. The secret itself is never sent. Equal to Java's
AclClientRPCHook, for brokers of 4.x (acl) and of 5.x (auth).
"""

from base64 import b64encode
from collections.abc import Mapping
from hmac import compare_digest, digest
from typing import Any, Final

import msgspec

from roquet.wire.call import Call
from roquet.wire.codes import FLAG_ONEWAY, VERSION
from roquet.wire.command import JSON, PYTHON, encode_json, json_pairs, sender
from roquet.wire.compact import encode_compact, write_pairs
from roquet.wire.fields import to_ext

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"

VERSION_WITHOUT_UNIQUE: Final = 399
"""The last version of clients that do not sign the field that marks a search for a unique key."""

_UNSIGNED_ONCE: Final = "_UNIQUE_KEY_QUERY"

_ALGORITHM: Final = "sha1"
"""The protocol knows no other; as a keyed hash it is still secure."""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Access key and secret of a client; the printed form does not contain the secret."""

    access_key: str
    secret_key: str
    security_token: str | None = None
    """For temporary keys."""

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r}, secret_key=…)"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("access_key", self.access_key), ("secret_key", "…")]


def signature_of(secret: bytes, ext: Mapping[str, str], body: bytes) -> str:
    """Signature of a request's fields, which hold none yet, and of its body."""
    # A lone surrogate becomes a question mark, as in Java's getBytes.
    text = "".join([ext[name] for name in sorted(ext)]).encode(errors="replace")
    return b64encode(digest(secret, text + body, _ALGORITHM)).decode()


def is_signed(secret: bytes, ext: Mapping[str, str], body: bytes, version: int) -> bool:
    """Whether a request carries the signature of this secret. Takes the same time for any other.

    Clients up to `VERSION_WITHOUT_UNIQUE` leave a field out, as Apache's brokers expect.
    """
    signed = dict(ext)
    signature = signed.pop(SIGNATURE, "")
    if version <= VERSION_WITHOUT_UNIQUE:
        signed.pop(_UNSIGNED_ONCE, None)
    expected = signature_of(secret, signed, body)
    return compare_digest(expected.encode(), signature.encode(errors="replace"))


class Signer:
    """Signs requests with one client's credentials."""

    def __init__(self, credentials: Credentials) -> None:
        self.access_key = credentials.access_key
        self._secret = credentials.secret_key.encode()
        self._names = {ACCESS_KEY: credentials.access_key}
        if credentials.security_token is not None:
            self._names[SECURITY_TOKEN] = credentials.security_token

    def sign(self, ext: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Fields of a request with the signature added."""
        signed = {**ext, **self._names}
        signed.pop(SIGNATURE, None)
        signed[SIGNATURE] = signature_of(self._secret, signed, body)
        return signed

    def encode_call(
        self,
        call: Call[Any],
        *,
        opaque: int,
        oneway: bool = False,
        language: int = PYTHON,
        version: int = VERSION,
        serialize_type: int = JSON,
    ) -> bytes:
        """Like `wire.fields.encode_call`, but signed."""
        flag, code, ext = FLAG_ONEWAY if oneway else 0, int(call.code), to_ext(call)
        if serialize_type == JSON:
            pairs = json_pairs(self.sign(ext, call.body))
            return encode_json(
                code, flag, opaque, sender(language, version), None, pairs, call.body
            )
        # Java reads an empty value of the compact form as null, and would sign the text "null".
        ext = {name: value for name, value in ext.items() if value}
        pairs = write_pairs(self.sign(ext, call.body))
        return encode_compact(code, flag, opaque, (language, version), None, pairs, call.body)
