"""Priority: the queue of a message with a priority, and the order in which a pop reads the queues.

    priority 0 1 2 3 4 5 …        a topic of type PRIORITY with 4 queues: the queue is the
    queue    0 1 2 3 3 3          priority, and pops read the highest one first

A group's attribute `priority.factor` is the share of its pops, in percent, that read in this order;
the others begin at a random queue. With `priority.ageing.ms` a queue rises by one place for each
such time that its next message has waited, so that no message waits for ever behind higher ones.
Sources: SendMessageProcessor and PopMessageProcessor of Apache RocketMQ 5.5.0; ageing is ours.
"""

from collections.abc import Mapping
from typing import Final

from roquet.model.errors import UsageError

FACTOR: Final = "priority.factor"
FACTOR_MAX: Final = 100

AGEING_MS: Final = "priority.ageing.ms"

LONG_MAX: Final = 2**63 - 1

_LIMITS: Final = {FACTOR: FACTOR_MAX, AGEING_MS: LONG_MAX}
"""Attributes of groups, each a number from 0 to this one."""


PRIORITY_MAX: Final = 2**31 - 1
"""The greatest priority: RocketMQ 5 has 32 bits for it."""


def parse_priority(text: str) -> int | None:
    """The priority that a text says; None if it is no number from 0 to PRIORITY_MAX."""
    return _number(text, PRIORITY_MAX)


def check_attribute(name: str, value: str) -> None:
    """Raise UsageError for an attribute of a group about priorities that is no legal number."""
    most = _LIMITS.get(name)
    if most is not None and _number(value, most) is None:
        raise UsageError(f"{name}: {value!r} is no number from 0 to {most}")


def reads_by_priority(attributes: Mapping[str, str], percent: int) -> bool:
    """Whether a pop of a group reads by priority; `percent` is a random number below 100."""
    factor = _number(attributes.get(FACTOR, ""), FACTOR_MAX)
    return percent < (FACTOR_MAX if factor is None else factor)


def ageing_ms(attributes: Mapping[str, str]) -> int:
    """Time after which a waiting message rises by one priority; 0 when it never does."""
    return _number(attributes.get(AGEING_MS, ""), LONG_MAX) or 0


def priority_queue(priority: int, queue_count: int) -> int:
    """The queue of a priority; the last one takes the priorities that have none of their own."""
    return max(0, min(priority, queue_count - 1))


def aged_priority(rank: int, waited_ms: int, ageing_ms: int) -> int:
    """Rank of a queue whose next message has waited so long: one more for each `ageing_ms`.

    A message from the future, which a clock stored that was set back since, has not waited.
    """
    return rank + max(waited_ms, 0) // ageing_ms


def _number(text: str, most: int) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(most))
    return number if is_number and (number := int(text)) <= most else None
