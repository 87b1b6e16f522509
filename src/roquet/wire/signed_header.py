"""Signed header: the values of a request's fields that its signature covers, as one text.

It is read from the received fields themselves, of which no dictionary is made: they stay as they
came, and a handler decodes them into its call afterwards.
"""

from typing import Final

import msgspec

from roquet.wire.compact import PackedFields
from roquet.wire.records.speedups import compiled
from roquet.wire.signing import ACCESS_KEY, SIGNATURE, UNSIGNED_ONCE, signed_text

HEADER_SIZE_MAX: Final = 16 * 1024
"""Bytes of the fields that the Python form reads, and twice: of strangers, too, whose longer ones
would take 0.1 s."""

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_json_fields: Final = msgspec.json.Decoder(dict[str, str]).decode
_packed_fields: Final = msgspec.msgpack.Decoder(dict[str, str]).decode


class SignedHeader(msgspec.Struct, frozen=True, gc=False):
    """Parts of a header by which its signature is checked."""

    text: bytes
    """Values of all fields but the signature, joined in the order of their names."""
    access_key: str | None
    signature: bytes
    """As it was received; empty without one."""
    values: tuple[str | None, ...]
    """Values of the fields that were asked for."""


@compiled
def signed_header(
    fields: msgspec.Raw | PackedFields | dict[str, str], wanted: tuple[str, ...]
) -> SignedHeader | None:
    """Read the signed parts of a header and the values of `wanted` fields.

    None where more has to be known: of fields that are not all texts, and of those whose signature
    depends on the client's version. None, too, for long ones where there is no compiled form, or
    where it leaves them to this one. Of a name that is given twice the last value counts.
    """
    if _size(fields) > HEADER_SIZE_MAX:
        return None
    named = text_fields(fields)
    if named is None or UNSIGNED_ONCE in named:
        return None
    return SignedHeader(
        signed_text(named),
        named.get(ACCESS_KEY),
        named.get(SIGNATURE, "").encode(errors="replace"),
        tuple(map(named.get, wanted)),
    )


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
