"""Argument checks: what is let through, and what the error says of the rest."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from roquet.client.arguments import (
    INT64_MAX,
    check_function,
    check_number,
    check_plain_function,
    check_queue,
    check_queues,
    check_reason,
    check_time,
    check_timeout,
)
from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue

QUEUE = MessageQueue("t", "broker-a", 0)


@pytest.mark.parametrize("value", [0, 1, INT64_MAX])
def test_whole_numbers_within_the_bounds_pass(value: int) -> None:
    assert check_number(value, "count") == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1, "count: -1 is less than 0"),
        (2**63, "count: a number of 64 bits is more than 9223372036854775807"),
        (1.0, r"count: a whole number \(int\), not 1.0"),
        (True, "not True"),
        ("3", "not '3'"),
        (None, "not None"),
    ],
)
def test_other_values_are_named(value: object, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        check_number(value, "count")


def test_no_timeout_is_one_without_end() -> None:
    check_timeout(None)
    check_timeout(0)
    with pytest.raises(UsageError, match="timeout_ms: 0 is less than 1"):
        check_timeout(0, least=1)
    with pytest.raises(UsageError, match="is more than"):
        check_timeout(10**18)


def test_queues_are_told_from_other_values() -> None:
    assert check_queue(QUEUE) is QUEUE
    assert check_queues((QUEUE,)) == [QUEUE]
    wrong: Any = MessageQueue(1, "broker-a", 0)  # type: ignore[arg-type]
    for value in (None, "t", wrong, MessageQueue("t", "broker-a", 2**40)):
        with pytest.raises(UsageError):
            check_queue(value)
    for several in (QUEUE, None, [None], "t"):
        with pytest.raises(UsageError):
            check_queues(several)


def test_functions_are_those_that_take_one_argument() -> None:
    class Handler:
        def __call__(self, message: object, pause: int = 0) -> None: ...

    for function in (print, len, Handler(), lambda message: None, lambda *all_of_them: None):
        assert check_function(function, "a handler", "the message") is function
    for wrong in (lambda: None, lambda a, b: None):
        with pytest.raises(UsageError, match="called with one argument, the message"):
            check_function(wrong, "a handler", "the message")
    with pytest.raises(UsageError, match="a handler is a function, not int"):
        check_function(3, "a handler", "the message")  # type: ignore[type-var]


@pytest.mark.parametrize(
    "time",
    [
        1_769_860_800_000,
        datetime(2026, 1, 31, 12, tzinfo=UTC),
        datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_a_time_is_ms_or_a_datetime(time: object) -> None:
    assert check_time(time, "stored") == 1_769_860_800_000


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (datetime(2026, 1, 31), "stored: 2026-01-31 00:00:00 has no time zone"),  # noqa: DTZ001
        ("now", "stored: a whole number"),
    ],
)
def test_a_time_without_a_zone_is_refused(time: object, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        check_time(time, "stored")


def test_a_plain_function_is_no_coroutine_function() -> None:
    async def later(body: bytes) -> bytes:
        return body

    assert check_plain_function(bytes.decode, "decode", "the body") is bytes.decode

    class Later:
        async def __call__(self, body: bytes) -> bytes:
            return body

    for function in (later, Later()):
        with pytest.raises(UsageError, match="decode is a plain function, no `async def`"):
            check_plain_function(function, "decode", "the body")
    with pytest.raises(UsageError, match="decode is called with one argument, the body"):
        check_plain_function(lambda: None, "decode", "the body")


def test_a_reason_is_a_text_or_none() -> None:
    assert (check_reason("late"), check_reason(None)) == ("late", None)
    with pytest.raises(UsageError, match="a reason is a str, not 3"):
        check_reason(3)
