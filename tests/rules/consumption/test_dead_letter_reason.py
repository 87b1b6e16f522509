"""Reasons of dead letters fit into a property, whatever error or text they are made of."""

import bz2
import gzip
import json
from asyncio import CancelledError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import ConfigError, RecordError
from roquet.model.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from roquet.rules.consumption.dead_letter_reason import (
    KIND_LENGTH_MAX,
    REASON_SIZE_MAX,
    error_reason,
    is_of_the_message,
    reason_kind,
    reason_text,
)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def error_of(action: object, *arguments: object) -> BaseException:
    assert callable(action)
    try:
        action(*arguments)
    except BaseException as error:
        return error
    raise AssertionError


def test_a_reason_is_the_type_and_text_of_an_error() -> None:
    assert error_reason(ValueError("no number")) == "ValueError: no number"
    assert error_reason(KeyError()) == "KeyError"
    assert error_reason(Unprintable()) == "Unprintable"


def test_lines_become_one() -> None:
    assert reason_text("1 error for Order\n  amount\r\n\n    too small\n") == (
        "1 error for Order; amount; too small"
    )


def test_what_separates_properties_is_escaped() -> None:
    assert reason_text("a\x01b\x02c\x1b[31m") == r"a\x01b\x02c\x1b[31m"


@given(st.text() | st.text(st.sampled_from("ä€😀\ud800\x01\n :"), max_size=3_000))
def test_any_text_fits_into_a_property(text: str) -> None:
    reason = reason_text(text)
    assert len(reason.encode()) <= REASON_SIZE_MAX
    assert not {NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, "\n"} & set(reason)
    assert reason_text(reason) == reason
    assert error_reason(ValueError(text)).startswith("ValueError")
    assert len(reason_kind(reason)) <= KIND_LENGTH_MAX


def test_a_huge_text_is_cut_before_it_is_looked_at() -> None:
    assert reason_text("x" * 100_000_000) == "x" * REASON_SIZE_MAX


@pytest.mark.parametrize(
    "error",
    [
        error_of(json.loads, b"{"),
        error_of(gzip.decompress, b"no gzip, of any kind"),  # an OSError
        error_of(bz2.decompress, b"no bzip2 either"),  # as well
        RecordError("cut short"),
        RecursionError(),
        CancelledError(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    ],
    ids=repr,
)
def test_bad_data_is_of_the_message(error: BaseException) -> None:
    assert is_of_the_message(error)


@pytest.mark.parametrize(
    "error",
    [ConnectionRefusedError(), TimeoutError(), MemoryError(), ModuleNotFoundError(), ConfigError()],
    ids=repr,
)
def test_what_another_time_may_not_meet_is_not_of_the_message(error: BaseException) -> None:
    assert not is_of_the_message(error)


def test_a_kind_leaves_out_what_differs() -> None:
    assert reason_kind("ValidationError: 1 error for Order; amount") == "ValidationError"
    assert reason_kind("amount is negative") == "amount is negative"
    assert reason_kind("") == ""
