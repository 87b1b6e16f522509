"""Argument checks of the client's public methods: UsageError says what to pass instead."""

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypeVar

from roquet.model.errors import UsageError
from roquet.model.moments import EPOCH
from roquet.model.names import is_text
from roquet.model.queue import MessageQueue

SubscribedTopics: TypeAlias = str | re.Pattern[str] | Sequence[str | re.Pattern[str]]
"""Topics by their names, and by regular expressions that match whole names."""

F = TypeVar("F", bound=Callable[..., object])

TIMEOUT_MS_MAX: Final = 100 * 365 * 24 * 3_600_000
"""A hundred years: event loops count no further."""

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def check_number(value: object, name: str, least: int = 0, most: int = INT64_MAX) -> int:
    """Return a whole number from `least` to `most`; UsageError for any other value."""
    if type(value) is int and least <= value <= most:
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{name}: a whole number (int), not {value!r:.100}")
    if not least <= value <= most:
        bound = f"less than {least}" if value < least else f"more than {most}"
        shown = value if abs(value) <= INT64_MAX else f"a number of {value.bit_length()} bits"
        raise UsageError(f"{name}: {shown} is {bound}")
    return value


def check_timeout(timeout_ms: object, name: str = "timeout_ms", least: int = 0) -> None:
    """Raise UsageError unless this is a time in ms, or None where no limit is meant."""
    if timeout_ms is not None:
        check_number(timeout_ms, name, least, TIMEOUT_MS_MAX)


def check_reason(reason: object) -> str | None:
    """Return a reason, or None where there is none; UsageError for any other value."""
    if reason is None or isinstance(reason, str):
        return reason
    raise UsageError(f"a reason is a str, not {reason!r:.100}")


def check_time(time: object, name: str) -> int:
    """Return a time in ms since 1970, given so or as a datetime with a time zone; or UsageError."""
    if not isinstance(time, datetime):
        return check_number(time, name, -INT64_MAX)
    if time.utcoffset() is None:
        raise UsageError(f"{name}: {time} has no time zone; datetime.now(UTC) has one")
    return (time - EPOCH) // timedelta(milliseconds=1)


def check_pattern(pattern: re.Pattern[Any]) -> re.Pattern[str]:
    """Return a compiled regular expression of topics; UsageError for one of bytes."""
    if not isinstance(pattern.pattern, str):
        raise UsageError(f"a pattern of topics is that of a str, not {pattern!r:.100}")
    return pattern


def list_of_topics(topics: object) -> list[Any]:
    """Return a constructor's topics as a list: none, one or several, which are not checked."""
    if topics is None:
        return []
    if isinstance(topics, Iterable) and not isinstance(topics, str | bytes):
        return list(topics)
    return [topics]


def check_queue(queue: object) -> MessageQueue:
    """Return a queue whose parts can be sent to a broker; UsageError for any other value."""
    if not isinstance(queue, MessageQueue):
        raise UsageError(f"a queue is a MessageQueue, not {queue!r:.100}: `queues()` gives them")
    if not (is_text(queue.topic) and is_text(queue.broker_name)):
        raise UsageError(f"topic and broker of a queue are str: {queue!r:.200}")
    check_number(queue.queue_id, "queue_id", -INT32_MAX, INT32_MAX)
    return queue


def check_queues(queues: object) -> list[MessageQueue]:
    """Return several queues as a list; UsageError for one queue, or for any other value."""
    if isinstance(queues, MessageQueue) or not isinstance(queues, Iterable):
        raise UsageError(f"queues: several MessageQueue, as [queue], not {queues!r:.100}")
    return [check_queue(queue) for queue in queues]


def is_coroutine_function(function: Callable[..., object]) -> bool:
    """Whether a function is an `async def`, or an object whose `__call__` is one."""
    is_coroutine = inspect.iscoroutinefunction
    return is_coroutine(function) or is_coroutine(type(function).__call__)


def check_plain_function(function: F, name: str, argument: str) -> F:
    """Return a function that is no `async def`; UsageError for any other value."""
    check_function(function, name, argument)
    if is_coroutine_function(function):
        raise UsageError(f"{name} is a plain function, no `async def`: it may not wait")
    return function


def check_function(function: F, name: str, argument: str) -> F:
    """Return a function that can be called with one argument; UsageError for any other value."""
    if not callable(function):
        raise UsageError(f"{name} is a function, not {type(function).__name__}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have none
        return function
    try:
        signature.bind(None)
    except TypeError:
        raise UsageError(
            f"{name} is called with one argument, {argument}: {function!r:.100} takes {signature}"
        ) from None
    return function
