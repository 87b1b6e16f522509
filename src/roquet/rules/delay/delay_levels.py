"""Delay levels: how long a delayed message waits, and a failed one until its next try.

Delay levels are numbered from 1. A message that failed for the n-th time waits one level longer
than the time before, beginning at level 3: 10 s, 30 s, 1 m … 2 h. After the last time it goes to
%DLQ%group. Its body, tag, keys and unique key stay; properties record where it came from.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from roquet.model import properties as names
from roquet.model.errors import ConfigError

UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

FIRST_RETRY_LEVEL: Final = 3
"""Level of a message's first retry; the two below are shorter than most failures last."""

UNKNOWN_DELAY_MS: Final = 1_000
"""Apache's delay for a level that is not in the table."""

_LEVEL: Final = re.compile(r"([+-]?[0-9]{1,15})([smhd])")


def parse_levels(text: str, name: str = "delay levels") -> tuple[int, ...]:
    """Parse "1s 5s 2h", with one blank between, into the delay of each level in ms."""
    delays = []
    for part in text.rstrip(" ").split(" "):  # Java's split drops empty parts at the end
        if not (match := _LEVEL.fullmatch(part)):
            raise ConfigError(
                f"{name}: {part!r} in {text!r} is not a number with s, m, h or d behind it"
            )
        delays.append(int(match[1]) * UNITS_MS[match[2]])
    return tuple(delays)


DEFAULT_LEVELS: Final = parse_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
"""Apache's default: 18 levels."""


def effective_level(level: int, levels: Sequence[int]) -> int:
    """Level that a message waits at: at most the highest one; 0 does not wait."""
    return max(0, min(level, len(levels)))


def due_ms(level: int, stored_ms: int, levels: Sequence[int]) -> int:
    """Delivery time of a message of a level that was stored at a time."""
    known = 0 < level <= len(levels)
    return stored_ms + (levels[level - 1] if known else UNKNOWN_DELAY_MS)


def excess_delay_ms(due: int, now_ms: int, delay_ms: int, known_ms: int = 0) -> int:
    """How much later than it should be a stored delivery time is, as seen now.

    No message of a level waits longer than the level's delay. Its delivery time is later only if
    the clock was set back, or the level was shortened, since it was stored. `known_ms` is the
    excess of the message before it: messages stored in sequence keep their distances.
    """
    latest = now_ms + max(delay_ms, 0)
    if due <= latest:
        return 0
    return known_ms if due - known_ms <= latest else due - latest


def retry_level(times: int) -> int:
    """Delay level of the next try after this many earlier failures."""
    return FIRST_RETRY_LEVEL + times


RETRY_STEPS_MS: Final = DEFAULT_LEVELS
"""Steps of a group without a policy of its own: the default levels, whatever the broker's are."""

POLICY_SKIPS: Final = 2
"""Steps of a CUSTOMIZED policy before the first retry's, as for the levels."""

EXPONENT_MAX: Final = 32
"""Apache's limit of the exponent."""

INITIAL_MS: Final = 5_000
DELAY_MAX_MS: Final = 2 * 3_600_000
MULTIPLIER: Final = 2
"""Apache's defaults of an EXPONENTIAL policy."""


class ExponentialBackoff(NamedTuple):
    """An EXPONENTIAL policy: each delay is the one before times `multiplier`, up to `max_ms`."""

    initial_ms: int
    max_ms: int
    multiplier: int


def exponential_backoff(policy: Mapping[str, object] | None) -> ExponentialBackoff | None:
    """The backoff of a group's policy, as the wire has it; None if it has steps instead."""
    policy = policy or {}
    found = policy.get("exponentialRetryPolicy")
    if policy.get("type") != "EXPONENTIAL" or not isinstance(found, Mapping):
        return None
    return ExponentialBackoff(
        _number(found.get("initial"), INITIAL_MS),
        _number(found.get("max"), DELAY_MAX_MS),
        _number(found.get("multiplier"), MULTIPLIER),
    )


def retry_steps_ms(policy: Mapping[str, object] | None) -> Sequence[int]:
    """The steps of a CUSTOMIZED policy, in ms; the default ones for a group without."""
    customized = (policy or {}).get("customizedRetryPolicy")
    steps = customized.get("next") if isinstance(customized, Mapping) else None
    return _numbers(steps) or RETRY_STEPS_MS


def retry_delay_ms(policy: Mapping[str, object] | None, times: int) -> int:
    """Delay of a group's message until its next try, by `groupRetryPolicy`.

    The policy is a group's setting as the wire has it: CUSTOMIZED with `next`, or EXPONENTIAL. It
    applies where a time is asked for: to a popped message, and in the 5.x proxy. A message that is
    sent back (36) waits by delay level instead, in Apache's broker as in ours.
    """
    times = max(times, 0)
    if (backoff := exponential_backoff(policy)) is not None:
        factor: int = backoff.multiplier ** min(times, EXPONENT_MAX)
        return min(backoff.max_ms, backoff.initial_ms * factor)
    delays = retry_steps_ms(policy)
    return delays[min(times + POLICY_SKIPS, len(delays) - 1)]


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and value > 0 else default


def _numbers(value: object) -> list[int]:
    """Steps of a customized policy; empty if they are not all numbers."""
    if not isinstance(value, list | tuple) or not all(isinstance(step, int) for step in value):
        return []
    return list(value)


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
