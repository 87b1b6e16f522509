r"""PropertyNormalizer: brings the property text of a message into the form that is stored.

The text gets a unique key if it has none, and the name of this cluster. A single message, not a
batch, also gets its region and whether it may be traced (as in stores of the genuine broker 5.5.0,
whose batches lack both). Every stored property is `name \x01 value \x02`, so that recovery can
tell a whole last record from a torn one.

Most texts are plain: well-formed, with a unique key, and without a property that asks for a delay,
a transaction or anything else of the broker. Their facts are read from the bytes as they are.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from roquet.model import properties as names
from roquet.model.errors import MessageIllegal, RecordError
from roquet.rules.consumption.priority import PRIORITY_MAX, parse_priority
from roquet.rules.delay.timer import DELIVERY_TIME_PROPERTIES, is_timed
from roquet.rules.message_type import MessageType, message_type
from roquet.wire.java_hash import hash_code
from roquet.wire.records.property_text import (
    decode_properties,
    decode_text,
    lossless_bytes,
    lossless_text,
    readable_text,
)
from roquet.wire.records.speedups import compiled, set_special

TAG_CODES_MAX: Final = 4_096
"""Tags whose hashes are cached: topics have few, and tags used as keys must not fill the memory."""

_END: Final = names.PROPERTY_SEPARATOR.encode()
_tag_code: Final = lru_cache(TAG_CODES_MAX)(hash_code)

PAIRS: Final = re.compile("(?:[^\x01\x02]++\x01[^\x01\x02]*+\x02)*+")
"""Well-formed pairs of names and values; the possessive repeats never backtrack."""

FROM_BROKERS: Final = frozenset(
    {
        names.POP_CK, names.POP_CK_OFFSET, names.FIRST_POP_TIME,
        names.TRANSACTION_CHECK_TIMES, names.TRANSACTION_PREPARED_QUEUE_OFFSET,
        names.CLUSTER, names.MSG_REGION, names.TRACE_ON, names.CRC32,
    }
)  # fmt: skip
BROKER_ONLY: Final = FROM_BROKERS | {
    names.TIMER_OUT_MS,
    names.TIMER_ENQUEUE_MS,
    names.TIMER_DEQUEUE_MS,
    names.TIMER_ROLL_TIMES,
}
"""Properties that only brokers set: receipts, what became of a message, a checksum. A client that
sends a received message again has them, one that forges them would lead consumers or operators
astray. The origin of a dead letter is not among them: whoever may write to that topic, as a replay
of an archive does, brings it along, and a message that dies gets its own. Those of the timer mean
nothing alone; TIMER_OUT_MS would end the delay of a message that is sent again."""

RECALL_KEY: Final = names.TIMER_DELETE_UNIQUE_KEY
SPECIAL: Final = FROM_BROKERS | {
    *DELIVERY_TIME_PROPERTIES,
    RECALL_KEY,
    names.DELAY,
    names.TRANSACTION_PREPARED,
    names.PRIORITY,
}
"""Properties that most messages lack and that need handling."""

set_special(SPECIAL)

RECALL_REFUSED: Final = f"property {RECALL_KEY} is the broker's own: ask to recall a message (370)"
PRIORITY_BATCH: Final = (
    f"property {names.PRIORITY} decides on the queue, and a batch has one: send each message alone"
)
DELAYED_BATCH: Final = "a property asks for a later delivery, which no batch can have: {}"


class NormalizedProperties(msgspec.Struct, frozen=True, gc=False):
    """A property text ready to be stored, and the facts read from it."""

    text: bytes
    tag_code: int
    waits: bool
    """Whether the sender waits until the message is durable."""
    unique_key: bytes
    is_special: bool = False
    """Whether it is delayed, timed, a half message or has a priority, as the next fields tell."""
    delay_level: int = 0
    """The requested delay level, which may not exist; 0 without one."""
    is_half: bool = False
    """Whether it belongs to a transaction: it is not delivered before its producer commits."""
    timed: bool = False
    """Whether a delivery time is requested, and no delay level."""
    priority: int | None = None
    """The priority, which decides on the queue; None without one."""


class PropertyNormalizer:
    """Normalizes the property texts of one broker."""

    def __init__(self, cluster: str, new_key: Callable[[], str]) -> None:
        self.cluster = f"{names.CLUSTER}\x01{cluster}\x02".encode()
        """Property that each message gets behind its own."""
        self.tail = self.cluster
        """Properties that each single message gets behind its own."""
        self._new_key = new_key

    def configure(self, region: str, *, traced: bool) -> None:
        """Set the region and the trace flag that single messages get."""
        tail = f"{names.MSG_REGION}\x01{region}\x02{names.TRACE_ON}\x01{str(traced).lower()}\x02"
        self.tail = self.cluster + tail.encode("utf-8", "surrogatepass")

    def normalize(self, text: bytes, alone: bool = False) -> NormalizedProperties:
        """The normalized property text. MessageIllegal for one that cannot be stored.

        A delay level, delivery time or transaction is allowed only for a single message (`alone`).
        """
        text = ended(text)
        facts = plain_facts(text)
        stored = text + (self.tail if alone else self.cluster)
        if facts is None or len(stored) > names.PROPERTIES_SIZE_MAX:
            return self._normalize_text(text, alone)
        return NormalizedProperties(stored, *facts)

    def normalize_batch(
        self, texts: list[bytes], shared: bytes
    ) -> tuple[list[bytes], list[int], bool]:
        """The normalized texts of a batch, their tag codes, and whether the first one waits.

        Each gets the properties that the batch shares. One illegal text refuses the whole batch.
        """
        if (plain := plain_batch(texts, shared, self.cluster)) is not None:
            return plain
        normalized = [self.normalize(ended(text) + shared) for text in texts]
        return (
            [message.text for message in normalized],
            [message.tag_code for message in normalized],
            normalized[0].waits,
        )

    def _normalize_text(self, raw: bytes, alone: bool) -> NormalizedProperties:
        """Normalize a text that is not cached; it ends with a separator."""
        text = lossless_text(raw)  # batches come with any bytes, which Apache's broker keeps, too
        if PAIRS.fullmatch(text):
            properties = _pairs(text)
        else:  # stored unchanged, a part without a name would look like a torn record
            properties = _readable(text)
            text = properties_text(properties)
        level, half, timed, priority = 0, False, False, None
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
            priority = _priority(properties)
            if priority is not None and not alone:
                raise MessageIllegal(PRIORITY_BATCH)
        key = properties.get(names.UNIQUE_KEY)
        if not key:
            key = self._new_key()
            text = f"{text}{names.UNIQUE_KEY}\x01{key}\x02"
        raw = lossless_bytes(text) + (self.tail if alone else self.cluster)
        if len(raw) > names.PROPERTIES_SIZE_MAX:
            raise MessageIllegal(
                f"the properties are {len(raw)} bytes long, {names.PROPERTIES_SIZE_MAX} fit"
            )
        tag, waits = properties.get(names.TAGS), properties.get(names.WAIT) != "false"
        code = _tag_code(readable_text(lossless_bytes(tag))) if tag else 0
        is_special = half or timed or level > 0 or priority is not None
        return NormalizedProperties(
            raw, code, waits, lossless_bytes(key), is_special, level, half, timed, priority
        )


PlainFacts = tuple[int, bool, bytes]
"""Tag code, whether the sender waits, unique key."""


@compiled
def plain_facts(text: bytes) -> PlainFacts | None:
    """The facts of a plain text; None for one that needs more than a look."""
    try:
        decoded = decode_text(text)
    except RecordError:
        return None
    if not PAIRS.fullmatch(decoded):
        return None
    properties = _pairs(decoded)
    key = properties.get(names.UNIQUE_KEY)
    if not key or not SPECIAL.isdisjoint(properties):
        return None
    tag = properties.get(names.TAGS)
    code, waits = _tag_code(tag) if tag else 0, properties.get(names.WAIT) != "false"
    return code, waits, key.encode("utf-8", "surrogatepass")


@compiled
def plain_batch(
    texts: list[bytes], shared: bytes, added: bytes
) -> tuple[list[bytes], list[int], bool] | None:
    """Complete plain texts with what they share and what is added; None unless all are plain.

    Gives the texts, their tag codes, and whether the first one's sender waits.
    """
    whole = [ended(text) + shared for text in texts]
    facts = [known for known in map(plain_facts, whole) if known is not None]
    stored = [text + added for text in whole]
    if len(facts) < len(texts) or max(map(len, stored)) > names.PROPERTIES_SIZE_MAX:
        return None
    return stored, [tag_code for tag_code, _, _ in facts], facts[0][1]


def ended(text: bytes) -> bytes:
    """The text with a separator at its end, so that properties can be appended."""
    return text + _END if text and not text.endswith(_END) else text


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
    """Properties and text without those that clients may not set. MessageIllegal for a recall."""
    if RECALL_KEY in properties:
        raise MessageIllegal(RECALL_REFUSED)
    unwanted = BROKER_ONLY.intersection(properties)
    if names.PRIORITY in properties and message_type(properties) is not MessageType.PRIORITY:
        unwanted |= {names.PRIORITY}  # an order key, a delay or a transaction decides on the queue
    if not unwanted:
        return properties, text
    properties = {name: value for name, value in properties.items() if name not in unwanted}
    return properties, properties_text(properties)


def _priority(properties: Mapping[str, str]) -> int | None:
    """The priority; None without one. MessageIllegal if it is no number up to PRIORITY_MAX."""
    text = properties.get(names.PRIORITY)
    if text is None:
        return None
    if (priority := parse_priority(text)) is None:
        raise MessageIllegal(
            f"property {names.PRIORITY} is {text!r:.100}, not a number from 0 to {PRIORITY_MAX}"
        )
    return priority


def delay_level(properties: Mapping[str, str]) -> int:
    """The requested delay level; 0 without one. MessageIllegal if it is no number."""
    text = properties.get(names.DELAY, "0")
    try:
        return max(0, int(text))
    except ValueError:
        raise MessageIllegal(f"property {names.DELAY} is {text!r}, not a number") from None
