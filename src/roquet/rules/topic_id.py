"""Topic ids: which topic of a name is meant; one that was deleted and made anew has another id.

An id is text that others keep beside the offsets they have reached, and compare:

    1763836680000-17           created at that time (ms), in edition 17 of the broker's topics
    adopted-1763836680000-17   was there before its broker gave ids, or its id was lost

Each broker gives ids of its own: a topic has one on each. None stands for a topic that has none, as
on a broker that gives none.
"""

import re
from typing import Final

ADOPTED: Final = "adopted-"

EDITIONS: Final = 1 << 20
"""Editions are counted up to here and again from 0, so that an id fits into 64 bits as a number."""

_ID: Final = re.compile(r"(adopted-)?(\d{1,13})-(\d{1,7})", re.ASCII)


def new_id(now_ms: int, edition: int) -> str:
    """The id of a topic that is made now.

    The edition of the table of topics grows with each change: two topics of one name that are
    made within the same millisecond differ in it.
    """
    return f"{now_ms}-{edition % EDITIONS}"


def adopted_id(now_ms: int, edition: int) -> str:
    """The id of a topic that was found without one."""
    return f"{ADOPTED}{new_id(now_ms, edition)}"


def is_other_topic(known: str | None, now: str | None) -> bool:
    """Whether the topic is certainly another one than that whose offsets are known.

    An id that was adopted later proves nothing: a broker that gives no ids may have dropped the
    one before, and the topic be the same.
    """
    return known is not None and now is not None and known != now and not now.startswith(ADOPTED)


def created_ms(topic_id: str) -> int | None:
    """When a topic was made; None when that is not known."""
    text, _, _ = topic_id.partition("-")
    return int(text) if text.isascii() and text.isdecimal() else None


def to_number(topic_id: str) -> int | None:
    """An id as a number of 63 bits, for places that keep no text; None for one of another form."""
    found = _ID.fullmatch(topic_id)
    if found is None or (edition := int(found[3])) >= EDITIONS:
        return None
    number = (int(found[2]) * EDITIONS + edition) * 2 + bool(found[1])
    return number if number < 2**63 else None  # a clock in the year 2109


def from_number(number: int) -> str:
    """The id that became this number."""
    now_ms, edition = divmod(number >> 1, EDITIONS)
    return adopted_id(now_ms, edition) if number & 1 else new_id(now_ms, edition)
