"""Retry: what becomes of a message that its group failed on, and what it then says of itself.

    failed ──▶ waits at a delay level ──▶ %RETRY%group ──▶ failed …     the last time ──▶ %DLQ%group

Its body, tag, keys and unique key stay as they are. The properties remember where it came from.
"""

from collections.abc import Mapping
from typing import Final

from roquet.model import properties as names
from roquet.rules.delay.delay_levels import retry_level

DEAD_LETTER: Final = -1
"""Instead of a delay level: there is no next try."""


TIMES_MAX: Final = 2**31 - 1
"""A client may write any number of tries into its message."""


def tries_limit(asked: int | None, of_group: int) -> int:
    """How often a message may be tried again: a member may ask for another number than its group's.

    Java takes a negative one as a limit, too, and buries the message at once; here it means none.
    """
    return of_group if asked is None or asked < 0 else asked


def next_level(asked: int, times: int, limit: int) -> int:
    """The delay level of the next try after so many before, or DEAD.

    `asked` is the member's wish: a level, 0 to leave it to the broker, less than 0 to give up.
    """
    if asked < 0 or times >= limit:
        return DEAD_LETTER
    return asked or retry_level(max(times, 0))


def times_after(times: int) -> int:
    """How often a message has failed after once more: a record has 32 bits for it."""
    return min(times + 1, TIMES_MAX)


def retry_properties(
    properties: Mapping[str, str], topic: str, offset_message_id: str, level: int
) -> dict[str, str]:
    """The properties of a message that waits for its next try; `topic` is where it lay."""
    return {**_origin(properties, topic, offset_message_id), names.DELAY: str(level)}


def dead_letter_properties(
    properties: Mapping[str, str], topic: str, offset_message_id: str
) -> dict[str, str]:
    """The properties of a message without another try: it waits for nothing, and tells its past."""
    found = _origin(properties, topic, offset_message_id)
    origin_id = found.get(names.UNIQUE_KEY) or found[names.ORIGIN_MESSAGE_ID]
    return {
        **found,
        names.DELAY: "0",
        names.DLQ_ORIGIN_TOPIC: found[names.RETRY_TOPIC],
        names.DLQ_ORIGIN_MESSAGE_ID: origin_id,
    }


def _origin(properties: Mapping[str, str], topic: str, offset_message_id: str) -> dict[str, str]:
    """What the first failure writes, and every later one keeps."""
    return {
        **properties,
        names.RETRY_TOPIC: properties.get(names.RETRY_TOPIC) or topic,
        names.ORIGIN_MESSAGE_ID: properties.get(names.ORIGIN_MESSAGE_ID) or offset_message_id,
        names.WAIT: "false",
    }
