"""Retry: the next delay of a message that its group failed on, and its properties.

    failed ──▶ waits at a delay level ──▶ %RETRY%group ──▶ failed …     the last time ──▶ %DLQ%group

Its body, tag, keys and unique key stay as they are. Properties record where it came from.
"""

from collections.abc import Mapping
from typing import Final

from roquet.model import properties as names
from roquet.rules.delay.delay_levels import retry_level

DEAD_LETTER: Final = -1
"""In place of a delay level: there is no next try."""


TIMES_MAX: Final = 2**31 - 1
"""A client may write any number of tries into its message."""


def tries_limit(requested: int | None, of_group: int) -> int:
    """Limit of tries: a member's own number if it asks for one, else the group's.

    Java takes a negative number as a limit, too, and moves the message to the dead letters at once;
    here it means none.
    """
    return of_group if requested is None or requested < 0 else requested


def next_level(requested: int, times: int, limit: int) -> int:
    """Delay level of the next try after this many earlier ones, or DEAD_LETTER.

    `requested` is the member's wish: a level, 0 to leave it to the broker, negative to give up.
    """
    if requested < 0 or times >= limit:
        return DEAD_LETTER
    return requested or retry_level(max(times, 0))


def times_after(times: int) -> int:
    """Number of failures after one more; a record has 32 bits for it."""
    return min(times + 1, TIMES_MAX)


def retry_properties(
    properties: Mapping[str, str], topic: str, offset_message_id: str, level: int
) -> dict[str, str]:
    """Properties of a message that waits for its next try; `topic` is the topic it was in."""
    return {**_origin(properties, topic, offset_message_id), names.DELAY: str(level)}


def dead_letter_properties(
    properties: Mapping[str, str], topic: str, offset_message_id: str
) -> dict[str, str]:
    """Properties of a message without another try: no delay, and where it came from."""
    origin = _origin(properties, topic, offset_message_id)
    origin_id = origin.get(names.UNIQUE_KEY) or origin[names.ORIGIN_MESSAGE_ID]
    return {
        **origin,
        names.DELAY: "0",
        names.DLQ_ORIGIN_TOPIC: origin[names.RETRY_TOPIC],
        names.DLQ_ORIGIN_MESSAGE_ID: origin_id,
    }


def _origin(properties: Mapping[str, str], topic: str, offset_message_id: str) -> dict[str, str]:
    """Properties with those that the first failure writes and later ones keep."""
    return {
        **properties,
        names.RETRY_TOPIC: properties.get(names.RETRY_TOPIC) or topic,
        names.ORIGIN_MESSAGE_ID: properties.get(names.ORIGIN_MESSAGE_ID) or offset_message_id,
        names.WAIT: "false",
    }
