r"""Encoded properties of a message.

    name \x01 value \x02 name \x01 value \x02 …

Older clients leave out the last \x02.
"""

from collections.abc import Mapping
from typing import Final

from roquet.model.errors import MessageIllegal, RecordError
from roquet.model.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

_END: Final = PROPERTY_SEPARATOR.encode()
_MIDDLE: Final = NAME_VALUE_SEPARATOR.encode()


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode properties in their order; raises MessageIllegal if one holds a separator."""
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    if text.count(NAME_VALUE_SEPARATOR) != len(properties) or (
        text.count(PROPERTY_SEPARATOR) != len(properties)
    ):
        raise MessageIllegal("a property holds U+0001 or U+0002, which separate properties")
    return text.encode("utf-8", "surrogatepass")


def decode_properties(text: bytes | str) -> dict[str, str]:
    """Decode properties; a part without a name or without a value is ignored.

    Bytes that are not UTF-8 become U+FFFD. For properties that are encoded again, decode the
    `lossless_text`.
    """
    if not isinstance(text, str):
        text = readable_text(text)
    properties: dict[str, str] = {}
    for part in text.split(PROPERTY_SEPARATOR):
        name, _, value = part.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def is_well_formed(text: bytes) -> bool:
    """Whether the separators pair: not in a torn text, nor in unusual ones that a peer may send.

    A torn write leaves zeros, so a text that ends in one is torn. A broker that writes only
    well-formed texts can distinguish a whole last record from a damaged one after a crash.
    """
    if not text:
        return True
    parts = text.removesuffix(_END).split(_END)
    return not text.endswith(b"\x00") and all(_MIDDLE in part for part in parts)


def readable_text(raw: bytes) -> str:
    """Decode any text: as `decode_text` does, or with U+FFFD in place of wrong bytes, as in Java.

    Old clients of Java and C++ write texts in the encoding of their machine, GBK for one.
    """
    try:
        return str(raw, "utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return str(raw, "utf-8", "replace")


def lossless_text(raw: bytes) -> str:
    """Decode any bytes so that `lossless_bytes` restores them: wrong ones become surrogates."""
    return str(raw, "utf-8", "surrogateescape")


def lossless_bytes(text: str) -> bytes:
    """Encode a text, perhaps with parts of a `lossless_text`. Never fails."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate of a JSON header
        return text.encode("utf-8", "surrogatepass")


def decode_text(raw: bytes) -> str:
    """Decode UTF-8 text; lone surrogates, which Java and JavaScript can hold, are kept.

    Raises RecordError for other bytes.
    """
    try:
        return str(raw, "utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise RecordError(f"text of a record is not UTF-8: {error}") from error
