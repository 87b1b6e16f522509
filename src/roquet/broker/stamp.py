r"""Stamp: a message's property text made ready to be stored.

It gets a unique key if its sender gave none, and the name of this cluster. Every piece of what is
stored is `name \x01 value \x02`, so that recovery can tell a whole last record from a torn one.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from roquet.model import properties as names
from roquet.model.errors import CallRefused, MessageIllegal
from roquet.wire.codes import ResponseCode
from roquet.wire.java import hash_code
from roquet.wire.property_text import decode_properties

TAG_CODES_MAX: Final = 4_096
"""Tags whose hashes are remembered: topics have few, and a tag that is a key must not fill us."""

PAIRS: Final = re.compile("(?:[^\x01\x02]++\x01[^\x01\x02]*+\x02)*+")
"""Names and values that pair as they should; with possessive repeats it never looks back."""

TIMES: Final = (names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)
FROM_BROKERS: Final = frozenset({names.POP_CK, names.CLUSTER})
SPECIAL: Final = FROM_BROKERS | {*TIMES, names.DELAY, names.TRANSACTION_PREPARED}
"""Properties that most messages lack, and that need a closer look."""

DELAYED: Final = "property {} asks for a later delivery, which this broker does not support yet"


class Stamped(NamedTuple):
    """A property text that is ready to be stored, and what was read on the way."""

    text: bytes
    tag_code: int
    unique_key: str
    waits: bool
    """Whether the sender wants to wait until the message is durable."""


class Stamps:
    """Makes property texts ready, for one cluster."""

    def __init__(self, cluster: str, new_key: Callable[[], str]) -> None:
        self._cluster = f"{names.CLUSTER}\x01{cluster}\x02"
        self._new_key = new_key
        self._tag_code = lru_cache(TAG_CODES_MAX)(hash_code)

    def stamp(self, text: str) -> Stamped:
        """The property text as it is stored; refused, when it asks for what we cannot do."""
        if PAIRS.fullmatch(text):
            words = iter(text.replace("\x01", "\x02").split("\x02"))
            found = dict(zip(words, words, strict=False))
        else:  # stored as it is, a piece without a name would look like a torn record
            found = decode_properties(text)
            text = text_of(found)
        if not SPECIAL.isdisjoint(found):
            text = _special(found, text)
        key = found.get(names.UNIQUE_KEY)
        if not key:
            key = self._new_key()
            text = f"{text}{names.UNIQUE_KEY}\x01{key}\x02"
        raw = (text + self._cluster).encode("utf-8", "surrogatepass")
        if len(raw) > names.PROPERTIES_SIZE_MAX:
            raise MessageIllegal(
                f"the properties are {len(raw)} bytes long, {names.PROPERTIES_SIZE_MAX} fit"
            )
        tag = found.get(names.TAGS)
        code = self._tag_code(tag) if tag else 0
        return Stamped(raw, code, key, found.get(names.WAIT) != "false")


def text_of(properties: dict[str, str]) -> str:
    """The text of properties that were read from one."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def half_message() -> CallRefused:
    """The refusal of a message that belongs to a transaction."""
    return CallRefused(
        ResponseCode.NO_PERMISSION, "this broker does not support transaction messages yet"
    )


def _special(found: dict[str, str], text: str) -> str:
    """The text without what only brokers may say; refused, when it asks for what we cannot do."""
    if found.get(names.TRANSACTION_PREPARED, "").lower() == "true":
        raise half_message()
    for name in TIMES:
        if name in found:
            raise MessageIllegal(DELAYED.format(name))
    if _delay_level(found.get(names.DELAY, "0")) > 0:
        raise MessageIllegal(DELAYED.format(names.DELAY))
    if FROM_BROKERS.isdisjoint(found):
        return text
    return text_of({name: value for name, value in found.items() if name not in FROM_BROKERS})


def _delay_level(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise MessageIllegal(f"property {names.DELAY} is {text!r}, not a number") from None
