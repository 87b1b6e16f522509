r"""The properties of a message as one text.

    name \x01 value \x02 name \x01 value \x02 …

Older clients leave the last \x02 out.
"""

from collections.abc import Mapping
from typing import Final

from roquet.model.errors import MessageIllegal, RecordError
from roquet.model.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

_END: Final = PROPERTY_SEPARATOR.encode()
_MIDDLE: Final = NAME_VALUE_SEPARATOR.encode()


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The text of these properties, in their order."""
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    if text.count(NAME_VALUE_SEPARATOR) != len(properties) or (
        text.count(PROPERTY_SEPARATOR) != len(properties)
    ):
        raise MessageIllegal("a property holds U+0001 or U+0002, which separate properties")
    return text.encode("utf-8", "surrogatepass")


def decode_properties(text: bytes | str) -> dict[str, str]:
    """The properties that a text holds; a piece without a name or without a value is none."""
    if not isinstance(text, str):
        text = decode_text(text)
    found: dict[str, str] = {}
    for piece in text.split(PROPERTY_SEPARATOR):
        name, _, value = piece.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            found[name] = value
    return found


def is_well_formed(text: bytes) -> bool:
    """Whether the control bytes pair: false for a torn text, and for odd ones a peer may send.

    A torn write leaves zeros, so a text that ends in one is torn. A broker that writes only texts
    that pair well can tell, after a crash, a whole last record from a damaged one.
    """
    if not text:
        return True
    pieces = text.removesuffix(_END).split(_END)
    return not text.endswith(b"\x00") and all(_MIDDLE in piece for piece in pieces)


def decode_text(raw: bytes) -> str:
    """UTF-8 text; lone surrogates, which Java and JavaScript can hold, survive."""
    try:
        return str(raw, "utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise RecordError(f"text of a record is not UTF-8: {error}") from error
