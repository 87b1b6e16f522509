"""Signing: requests with proof of their sender, for clusters with access control.

Each request carries an access key and a signature: HMAC-SHA1 with the secret key over the values of
all header fields, sorted by name, and the body. The secret itself is never sent. Equal to Java's
AclClientRPCHook, for brokers of 4.x (acl) and of 5.x (auth).
"""

from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha1
from hmac import compare_digest
from operator import itemgetter
from typing import Any, Final

import msgspec

from roquet.wire.call import ACCESS_KEY as ACCESS_KEY
from roquet.wire.call import Call
from roquet.wire.codes import FLAG_ONEWAY, VERSION
from roquet.wire.command import JSON, PYTHON, encode_json, json_pairs, sender
from roquet.wire.compact import PackedFields, encode_compact, write_pairs
from roquet.wire.fields import to_ext
from roquet.wire.records.speedups import compiled

SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"

VERSION_WITHOUT_UNIQUE: Final = 399
"""The last version of clients that do not sign the field that marks a search for a unique key."""

UNSIGNED_ONCE: Final = "_UNIQUE_KEY_QUERY"
"""That field."""

_ORDERS_MAX: Final = 256
"""Orders of fields that are remembered; clients have one for each kind of request."""

_NAMES_LENGTH_MAX: Final = 1_024
"""Characters of all names in an order that is remembered: a stranger may send any names."""

_BLOCK_SIZE: Final = 64
_INNER_PAD: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD: Final = bytes(byte ^ 0x5C for byte in range(256))
"""Of HMAC with SHA-1 (RFC 2104); the protocol knows no other."""


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


class FieldOrders:
    """Values of fields in signed order, by the fields' names as they came.

    Requests of one kind from one kind of client have the same names in the same order.
    """

    __slots__ = ("_by_names",)

    def __init__(self) -> None:
        self._by_names: dict[tuple[str, ...], Callable[[Mapping[str, str]], Iterable[str]]] = {}

    def text(self, ext: Mapping[str, str]) -> bytes:
        """Values of all fields but the signature, joined in the order of their names."""
        names = tuple(ext)
        if (values := self._by_names.get(names)) is None:
            values = self._order(names)
        # A lone surrogate becomes a question mark, as in Java's getBytes.
        return "".join(values(ext)).encode(errors="replace")

    def _order(self, names: tuple[str, ...]) -> Callable[[Mapping[str, str]], Iterable[str]]:
        """A function from fields with these names to their values in signed order."""
        signed = sorted(name for name in names if name != SIGNATURE)
        # Of one name an itemgetter gives the value itself, whose characters join to it again.
        values = itemgetter(*signed) if signed else lambda _: ()
        if sum(map(len, names)) <= _NAMES_LENGTH_MAX:
            if len(self._by_names) >= _ORDERS_MAX:
                self._by_names.clear()
            self._by_names[names] = values
        return values


signed_text: Final = FieldOrders().text
"""Text of a request's fields that its signature covers, before the body."""


class SigningKey:
    """A secret key, which makes signatures and checks them; it has no printed form.

    HMAC hashes a block of the key before each text and before each digest: both are hashed once.
    """

    __slots__ = ("blocks", "inner", "outer", "user")

    def __init__(self, secret: str, user: str = "") -> None:
        """`user` is whom a server knows by it."""
        self.user = user
        key = secret.encode(errors="replace")
        if len(key) > _BLOCK_SIZE:
            key = sha1(key).digest()
        block = key.ljust(_BLOCK_SIZE, b"\0")
        self.blocks = block.translate(_INNER_PAD), block.translate(_OUTER_PAD)
        self.inner, self.outer = map(sha1, self.blocks)

    def signature(self, ext: Mapping[str, str], body: bytes) -> str:
        """Signature of a request's fields, except that of a signature, and of its body."""
        return self._of(signed_text(ext), body).decode()

    def has_signed(self, ext: Mapping[str, str], body: bytes, version: int) -> bool:
        """Whether a request carries this key's signature; takes the same time for any other.

        Clients up to `VERSION_WITHOUT_UNIQUE` leave a field out, as Apache's brokers expect.
        """
        signed = ext
        if version <= VERSION_WITHOUT_UNIQUE and UNSIGNED_ONCE in ext:
            signed = {name: value for name, value in ext.items() if name != UNSIGNED_ONCE}
        signature = ext.get(SIGNATURE, "").encode(errors="replace")
        return self.has_made(signature, signed_text(signed), body)

    def has_made(self, signature: bytes, text: bytes, body: bytes) -> bool:
        """Whether this is the signature of a text of fields and a body; in constant time."""
        return compare_digest(self._of(text, body), signature)

    def _of(self, text: bytes, body: bytes) -> bytes:
        inner, outer = self.inner.copy(), self.outer.copy()
        inner.update(text)
        inner.update(body)
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False)


class Signer:
    """Signs requests with one client's credentials."""

    def __init__(self, credentials: Credentials) -> None:
        self.access_key = credentials.access_key
        self._key = SigningKey(credentials.secret_key)
        self._names = {ACCESS_KEY: credentials.access_key}
        if credentials.security_token is not None:
            self._names[SECURITY_TOKEN] = credentials.security_token

    def sign(self, ext: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Fields of a request with the signature added."""
        signed = {**ext, **self._names}
        signed[SIGNATURE] = self._key.signature(signed, body)
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


HEADER_SIZE_MAX: Final = 16 * 1024
"""Bytes of the fields that the Python form reads, and twice: of strangers, too, whose longer ones
would take 0.1 s."""

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_json_fields: Final = msgspec.json.Decoder(dict[str, str]).decode
_packed_fields: Final = msgspec.msgpack.Decoder(dict[str, str]).decode


@compiled
def signed_by(
    fields: msgspec.Raw | PackedFields | dict[str, str],
    body: bytes,
    keys: dict[str, SigningKey],
    wanted: tuple[str, ...],
) -> tuple[str, tuple[str | None, ...]] | None:
    """The access key by whose secret a request is signed, and the values of `wanted` fields.

    None where the signature is another one, or more has to be known: of an access key that is not
    among `keys`, of fields that are not all texts, and of those whose signature depends on the
    client's version. None, too, for long ones where there is no compiled form, or where it leaves
    them to this one. Of a name that is given twice the last value counts.
    """
    if _size(fields) > HEADER_SIZE_MAX:
        return None
    named = text_fields(fields)
    if named is None or UNSIGNED_ONCE in named or not named.keys() >= {ACCESS_KEY, SIGNATURE}:
        return None
    key = keys.get(name := named[ACCESS_KEY])
    signature = named[SIGNATURE].encode(errors="replace")
    if key is None or not key.has_made(signature, signed_text(named), body):
        return None
    return name, tuple(map(named.get, wanted))


def _size(fields: msgspec.Raw | PackedFields | dict[str, str]) -> int:
    """Bytes of received fields; 0 for fields that were made here."""
    if isinstance(fields, PackedFields):
        return len(fields.pairs)
    return len(fields) if isinstance(fields, msgspec.Raw) else 0


def text_fields(fields: msgspec.Raw | PackedFields | dict[str, str]) -> dict[str, str] | None:
    """Received fields by name; None if they are not all texts, or were made here."""
    try:
        if isinstance(fields, msgspec.Raw):
            return _json_fields(fields)
        if isinstance(fields, PackedFields):
            return _packed_fields(fields.packed)
    except _UNREADABLE:
        pass
    return None
