"""Schedule: how long a delayed message waits, and how long a failed one until its next try.

Delay levels are numbered from 1. A message that failed for the n-th time waits one level longer
than after the time before, beginning at level 3, so 10 s, 30 s, 1 m … 2 h.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from roquet.model.errors import ConfigError

UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

FIRST_RETRY_LEVEL: Final = 3
"""Of a message's first retry; the two below it are shorter than most troubles last."""

UNKNOWN_DELAY_MS: Final = 1_000
"""The genuine answer for a level that is not in the table."""

_LEVEL: Final = re.compile(r"([+-]?[0-9]{1,15})([smhd])")


def parse_levels(text: str, name: str = "delay levels") -> tuple[int, ...]:
    """The delay of each level in ms: "1s 5s 2h", one blank between two, as the genuine key."""
    found = []
    for piece in text.rstrip(" ").split(" "):  # Java's split drops empty pieces at the end
        if not (match := _LEVEL.fullmatch(piece)):
            raise ConfigError(
                f"{name}: {piece!r} in {text!r} is not a number with s, m, h or d behind it"
            )
        found.append(int(match[1]) * UNITS_MS[match[2]])
    return tuple(found)


DEFAULT_LEVELS: Final = parse_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
"""The genuine default: 18 levels."""


def effective_level(asked: int, levels: Sequence[int]) -> int:
    """The level that a message waits at: the highest when more is asked; 0 does not wait."""
    return max(0, min(asked, len(levels)))


def due_ms(level: int, stored_ms: int, levels: Sequence[int]) -> int:
    """When a message of a level that was stored at a time is to be delivered."""
    known = 0 < level <= len(levels)
    return stored_ms + (levels[level - 1] if known else UNKNOWN_DELAY_MS)


def excess_delay_ms(due: int, now_ms: int, delay_ms: int, known_ms: int = 0) -> int:
    """How far a noted delivery time lies ahead of what it should be, as it is seen now.

    No message of a level waits longer than the level says. Its time lies farther away only if the
    clock was set back, or the level was made shorter, since it was stored. `known_ms` is what was
    found for the message before it: those that were stored one after the other stay so far apart.
    """
    latest = now_ms + max(delay_ms, 0)
    if due <= latest:
        return 0
    return known_ms if due - known_ms <= latest else due - latest


def retry_level(times: int) -> int:
    """The delay level after so many failures before this one."""
    return FIRST_RETRY_LEVEL + times


RETRY_STEPS_MS: Final = DEFAULT_LEVELS
"""What a group's policy says when it was not told: the default levels, whatever the broker's."""

POLICY_SKIPS: Final = 2
"""Steps of a CUSTOMIZED ladder in front of the first retry, as for the levels."""

EXPONENT_MAX: Final = 32
"""The genuine limit of the power."""

INITIAL_MS: Final = 5_000
DELAY_MAX_MS: Final = 2 * 3_600_000
MULTIPLIER: Final = 2
"""The genuine defaults of an EXPONENTIAL policy."""


def retry_delay_ms(policy: Mapping[str, object] | None, times: int) -> int:
    """How long a group's message waits for its next try after so many, by `groupRetryPolicy`.

    The policy is a group's setting as the wire has it: CUSTOMIZED with `next`, or EXPONENTIAL. It
    applies where a time is asked for: to a message that was popped, and in the 5.x proxy. A message
    that is sent back (36) waits by delay level instead, in the genuine broker as in ours.
    """
    policy, times = policy or {}, max(times, 0)
    if policy.get("type") == "EXPONENTIAL":
        exponential = policy.get("exponentialRetryPolicy")
        if isinstance(exponential, Mapping):
            return _exponential_ms(exponential, times)
    customized = policy.get("customizedRetryPolicy")
    steps = customized.get("next") if isinstance(customized, Mapping) else None
    ladder = _numbers(steps) or RETRY_STEPS_MS
    return ladder[min(times + POLICY_SKIPS, len(ladder) - 1)]


def _exponential_ms(policy: Mapping[str, object], times: int) -> int:
    initial = _number(policy.get("initial"), INITIAL_MS)
    longest = _number(policy.get("max"), DELAY_MAX_MS)
    multiplier = _number(policy.get("multiplier"), MULTIPLIER)
    factor: int = multiplier ** min(times, EXPONENT_MAX)
    return min(longest, initial * factor)


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and value > 0 else default


def _numbers(value: object) -> list[int]:
    """The steps of a ladder; none when they are not all numbers."""
    if not isinstance(value, list | tuple) or not all(isinstance(step, int) for step in value):
        return []
    return list(value)
