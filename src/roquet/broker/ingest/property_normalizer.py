r"""PropertyNormalizer: brings the property text of a message into the form that is stored.

The text gets a unique key if it has none, and the name of this cluster. A single message, not a
batch, also gets its region and whether it may be traced (as in stores of the genuine broker 5.5.0,
whose batches lack both). Every stored property is `name \x01 value \x02`, so that recovery can
tell a whole last record from a torn one.

The texts of one producer differ only in their keys. With the keys cut out they are equal, so the
facts read from one text are cached for all texts like it:

    UNIQ_KEY \x01 7F00…01 \x02 TAGS \x01 red \x02 WAIT \x01 true \x02
                  └ cut ─┘
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from roquet.broker.ingest.batch_shape import have_one_shape
from roquet.model import properties as names
from roquet.model.errors import MessageIllegal, RecordError
from roquet.rules.delay.timer import DELIVERY_TIME_PROPERTIES, is_timed
from roquet.wire.java_hash import hash_code
from roquet.wire.records.property_text import decode_properties, decode_text

TAG_CODES_MAX: Final = 4_096
"""Tags whose hashes are cached: topics have few, and tags used as keys must not fill the memory."""

PAIRS: Final = re.compile("(?:[^\x01\x02]++\x01[^\x01\x02]*+\x02)*+")
"""Well-formed pairs of names and values; the possessive repeats never backtrack."""

CACHE_MAX: Final = 4_096
"""Cached texts without their keys: a broker serves fewer kinds of messages."""

CACHED_SIZE_MAX: Final = 512
"""Bytes of a cached text; longer ones are seldom repeated, and must not fill the memory."""

_END: Final = b"\x02"
_UNIQUE_KEY: Final = names.UNIQUE_KEY.encode() + b"\x01"
_KEYS: Final = names.KEYS.encode() + b"\x01"
_ROW: Final = names.SINK_ROW.encode() + b"\x01"
_END_BYTE: Final = _END[0]
_MIDDLE_BYTE: Final = _KEYS[-1]

FROM_BROKERS: Final = frozenset({names.POP_CK, names.CLUSTER, names.MSG_REGION, names.TRACE_ON})
BROKER_ONLY: Final = FROM_BROKERS | {names.TIMER_OUT_MS}
"""Properties that only brokers set. TIMER_OUT_MS alone means nothing; with a delay it is part of a
received message, and a client that sends that again does not want it at once."""

RECALL_KEY: Final = names.TIMER_DELETE_UNIQUE_KEY
SPECIAL: Final = FROM_BROKERS | {
    *DELIVERY_TIME_PROPERTIES,
    RECALL_KEY,
    names.DELAY,
    names.TRANSACTION_PREPARED,
}
"""Properties that most messages lack and that need handling."""

HALF: Final = frozenset({names.TRANSACTION_PREPARED})
"""The one of them that is the same in every text of a producer."""

RECALL_REFUSED: Final = f"property {RECALL_KEY} is the broker's own: ask to recall a message (370)"
DELAYED_BATCH: Final = "a property asks for a later delivery, which no batch can have: {}"


class NormalizedProperties(msgspec.Struct, frozen=True, gc=False):
    """A property text ready to be stored, and the facts read from it."""

    text: bytes
    tag_code: int
    waits: bool
    """Whether the sender waits until the message is durable."""
    unique_key: bytes
    is_special: bool = False
    """Whether it is delayed, timed or a half message, as the next fields tell."""
    delay_level: int = 0
    """The requested delay level, which may not exist; 0 without one."""
    is_half: bool = False
    """Whether it belongs to a transaction: it is not delivered before its producer commits."""
    timed: bool = False
    """Whether a delivery time is requested, and no delay level."""


class PropertyNormalizer:
    """Normalizes the property texts of one broker."""

    def __init__(self, cluster: str, new_key: Callable[[], str]) -> None:
        self._cluster = f"{names.CLUSTER}\x01{cluster}\x02".encode()
        self._tail = self._cluster
        self._size_max = names.PROPERTIES_SIZE_MAX - len(self._tail)
        self._new_key = new_key
        self._tag_code = lru_cache(TAG_CODES_MAX)(hash_code)
        self._known: dict[tuple[bytes, bytes], tuple[int, bool, bool]] = {}
        """(tag code, waits, is half message), by the text before and after the unique key."""

    def configure(self, region: str, *, traced: bool) -> None:
        """Set the region and the trace flag that single messages get."""
        tail = f"{names.MSG_REGION}\x01{region}\x02{names.TRACE_ON}\x01{str(traced).lower()}\x02"
        self._tail = self._cluster + tail.encode("utf-8", "surrogatepass")
        self._size_max = names.PROPERTIES_SIZE_MAX - len(self._tail)

    def normalize(self, text: bytes, alone: bool = False) -> NormalizedProperties:
        """The normalized property text. MessageIllegal for one that cannot be stored.

        A delay level, delivery time or transaction is allowed only for a single message (`alone`).
        """
        if text and text[-1] != _END_BYTE:
            text += _END
        before, _, behind = text.partition(_UNIQUE_KEY)
        key, _, behind = behind.partition(_END)
        # Searching bytes for an int takes a tenth of the time of searching for one byte of bytes.
        if not key or _MIDDLE_BYTE in key or not key.isascii() or len(text) > self._size_max:
            return self._normalize_text(text, alone)
        facts = self._known.get((before, behind))
        if facts is None:
            before, behind = _without_keys(before), _without_keys(behind)
            facts = self._known.get((before, behind))
            if facts is None:
                normalized = self._normalize_text(text, alone)
                self._learn(before, behind)
                return normalized
        tag_code, waits, is_half = facts
        if is_half:
            if not alone:
                raise half_message_refusal()
            return NormalizedProperties(text + self._tail, tag_code, waits, key, True, 0, True)
        return NormalizedProperties(
            text + (self._tail if alone else self._cluster), tag_code, waits, key
        )

    def normalize_batch(self, texts: Sequence[bytes]) -> tuple[list[bytes], list[int], bool]:
        """The normalized texts of a batch, their tag codes, and whether the first one waits.

        One illegal text refuses the whole batch.
        """
        first = self.normalize(texts[0])
        # The first text must be stored unchanged: then the others are, too.
        if first.text == texts[0] + self._cluster and have_one_shape(texts):
            cluster = self._cluster
            stored = [text + cluster for text in texts]
            return stored, [first.tag_code] * len(texts), first.waits
        normalized = [first, *map(self.normalize, texts[1:])]
        return (
            [message.text for message in normalized],
            [message.tag_code for message in normalized],
            first.waits,
        )

    def _normalize_text(self, raw: bytes, alone: bool) -> NormalizedProperties:
        """Normalize a text that is not cached; it ends with a separator."""
        try:
            text = decode_text(raw)
        except RecordError as error:
            raise MessageIllegal(str(error)) from error
        if PAIRS.fullmatch(text):
            properties = _pairs(text)
        else:  # stored unchanged, a part without a name would look like a torn record
            properties = _readable(text)
            text = properties_text(properties)
        level, half, timed = 0, False, False
        if not SPECIAL.isdisjoint(properties):
            properties, text = _special(properties, text)
            level, half = delay_level(properties), is_half(properties)
            if half and not alone:
                raise half_message_refusal()
            timed = not level and is_timed(properties)
            if (level or timed) and not alone:
                wishes = [
                    name for name in (names.DELAY, *DELIVERY_TIME_PROPERTIES) if name in properties
                ]
                raise MessageIllegal(DELAYED_BATCH.format(", ".join(wishes)))
        key = properties.get(names.UNIQUE_KEY)
        if not key:
            key = self._new_key()
            text = f"{text}{names.UNIQUE_KEY}\x01{key}\x02"
        raw = text.encode("utf-8", "surrogatepass") + (self._tail if alone else self._cluster)
        if len(raw) > names.PROPERTIES_SIZE_MAX:
            raise MessageIllegal(
                f"the properties are {len(raw)} bytes long, {names.PROPERTIES_SIZE_MAX} fit"
            )
        code, waits = self._facts(properties)
        key_raw = key.encode("utf-8", "surrogatepass")
        is_special = half or timed or level > 0
        return NormalizedProperties(raw, code, waits, key_raw, is_special, level, half, timed)

    def _learn(self, before: bytes, behind: bytes) -> None:
        """Cache the facts of a text, unless a text like it could have other facts.

        The cut must be in the unique key, not in another name with that ending, and there must be
        no special property: everything else is equal in every text like it.
        """
        if len(before) + len(behind) > CACHED_SIZE_MAX:
            return
        text = decode_text(before + _UNIQUE_KEY + _END + behind)
        if text.count(f"{names.UNIQUE_KEY}\x01") != 1 or not PAIRS.fullmatch(text):
            return
        properties = _pairs(text)
        if names.UNIQUE_KEY in properties and SPECIAL.isdisjoint(properties.keys() - HALF):
            if len(self._known) >= CACHE_MAX:
                self._known.clear()
            self._known[before, behind] = *self._facts(properties), is_half(properties)

    def _facts(self, properties: dict[str, str]) -> tuple[int, bool]:
        """The tag code, and whether the sender waits."""
        tag = properties.get(names.TAGS)
        return self._tag_code(tag) if tag else 0, properties.get(names.WAIT) != "false"


def _pairs(text: str) -> dict[str, str]:
    """The properties of a well-formed text, with empty ones; of two with one name the last."""
    words = iter(text.replace("\x01", "\x02").split("\x02"))
    return dict(zip(words, words, strict=False))


def _readable(text: str) -> dict[str, str]:
    """The properties of any text. MessageIllegal for a value that readers parse differently."""
    properties = decode_properties(text)
    for name, value in properties.items():
        if names.NAME_VALUE_SEPARATOR in value:
            raise MessageIllegal(f"property {name} holds U+0001, which separates name and value")
    return properties


def _without_keys(text: bytes) -> bytes:
    """The text without the values of keys, which differ in every message."""
    for key in (_KEYS, _ROW):
        before, name, behind = text.partition(key)
        if name:
            value, end, behind = behind.partition(_END)
            if value.isascii() and _MIDDLE_BYTE not in value:
                text = before + name + end + behind
    return text


def properties_text(properties: Mapping[str, str]) -> str:
    """The text of decoded properties."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def half_message_refusal() -> MessageIllegal:
    """The error for a half message in a batch, or with the flag or the property alone."""
    return MessageIllegal(
        f"a message of a transaction is sent alone, with property {names.TRANSACTION_PREPARED}"
    )


def is_half(properties: Mapping[str, str]) -> bool:
    """Whether a message belongs to a transaction."""
    return properties.get(names.TRANSACTION_PREPARED, "").lower() == "true"


def _special(properties: dict[str, str], text: str) -> tuple[dict[str, str], str]:
    """Properties and text without those that only brokers set. MessageIllegal for a recall."""
    if RECALL_KEY in properties:
        raise MessageIllegal(RECALL_REFUSED)
    if BROKER_ONLY.isdisjoint(properties):
        return properties, text
    properties = {name: value for name, value in properties.items() if name not in BROKER_ONLY}
    return properties, properties_text(properties)


def delay_level(properties: Mapping[str, str]) -> int:
    """The requested delay level; 0 without one. MessageIllegal if it is no number."""
    text = properties.get(names.DELAY, "0")
    try:
        return max(0, int(text))
    except ValueError:
        raise MessageIllegal(f"property {names.DELAY} is {text!r}, not a number") from None
