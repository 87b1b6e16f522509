"""Topic ids: distinguish a topic from an earlier one of the same name that was deleted.

An id is a text that others store beside the offsets they have reached, and compare:

    1763836680000-17           created at that time (ms), in version 17 of the broker's topics
    adopted-1763836680000-17   existed before its broker gave ids, or its id was lost
    1-0                        a group's retry topic that was never deleted

Each broker gives its own ids: a topic has one on each. None stands for a topic without an id, as on
a broker that gives none.
"""

import re
from typing import Final

ADOPTED: Final = "adopted-"

FIRST: Final = "1-0"
"""Id of a retry topic that was never deleted. A heartbeat creates it, and it is not saved at once:
after a kill the next heartbeat creates it again, and members must not take it for another topic."""

EDITIONS: Final = 1 << 20
"""Table versions are counted modulo this, so that an id fits into 64 bits as a number."""

_ID: Final = re.compile(r"(adopted-)?(\d{1,13})-(\d{1,7})", re.ASCII)


def new_id(now_ms: int, edition: int) -> str:
    """Id of a topic that is created now.

    The version of the topic table grows with each change: two topics of one name that are created
    within the same millisecond differ in it.
    """
    return f"{now_ms}-{edition % EDITIONS}"


def adopted_id(now_ms: int, edition: int) -> str:
    """Id of an existing topic that has none."""
    return f"{ADOPTED}{new_id(now_ms, edition)}"


def is_other_topic(known: str | None, now: str | None) -> bool:
    """Whether the topic is certainly another one than that whose offsets are known.

    An adopted id proves nothing: a broker that gives no ids may have dropped the previous one, and
    the topic may be the same.
    """
    return known is not None and now is not None and known != now and not is_adopted(now)


def is_adopted(topic_id: str) -> bool:
    """Whether a topic existed before its broker gave ids, or its id was lost."""
    return topic_id.startswith(ADOPTED)


def created_ms(topic_id: str) -> int | None:
    """When a topic was created; None if unknown."""
    text, _, _ = topic_id.partition("-")
    return int(text) if text.isascii() and text.isdecimal() else None


def to_number(topic_id: str) -> int | None:
    """An id as a 63-bit number, for places that store no text; None for an id of another form."""
    match = _ID.fullmatch(topic_id)
    if match is None or (edition := int(match[3])) >= EDITIONS:
        return None
    number = (int(match[2]) * EDITIONS + edition) * 2 + bool(match[1])
    return number if number < 2**63 else None  # a clock in the year 2109


def from_number(number: int) -> str:
    """Inverse of `to_number`."""
    now_ms, edition = divmod(number >> 1, EDITIONS)
    return adopted_id(now_ms, edition) if number & 1 else new_id(now_ms, edition)
