"""Confirmed prefix: it grows, never changes, and is never cut."""

import pytest

from roquet.wire.records.record import MAGIC_BLANK, TOTAL_AND_MAGIC
from simulation.replicated.confirmed_prefix import (
    ConfirmedPrefix,
    LogReader,
    first_difference,
)
from simulation.replicated.history import ReplicatedHistory


def reader(log: bytes) -> LogReader:
    return lambda start: log[start:]


@pytest.fixture
def history() -> ReplicatedHistory:
    return ReplicatedHistory(lambda: 0)


@pytest.fixture
def prefix(history: ReplicatedHistory) -> ConfirmedPrefix:
    return ConfirmedPrefix(history)


def test_it_grows_with_what_anybody_confirms(
    prefix: ConfirmedPrefix, history: ReplicatedHistory
) -> None:
    prefix.observe("a", reader(b"onetwo?"), 6)
    prefix.observe("b", reader(b"onetwothree"), 3)
    prefix.observe("b", reader(b"onetwothree"), 11)
    prefix.observe("c", reader(b"one"), 9)
    assert prefix.content == b"onetwothree"
    assert history.broken == []


def test_another_byte_in_it_is_found(prefix: ConfirmedPrefix, history: ReplicatedHistory) -> None:
    prefix.observe("a", reader(b"onetwo"), 6)
    prefix.observe("b", reader(b"onetwx"), 5)
    assert history.broken == []
    prefix.observe("c", reader(b"onetxo!"), 7)
    (finding,) = history.broken
    assert finding.startswith("fork: c calls 7 bytes confirmed, and byte 4")
    assert prefix.content == b"onetwo"


def test_a_cut_into_it_is_found(prefix: ConfirmedPrefix, history: ReplicatedHistory) -> None:
    prefix.observe("a", reader(b"onetwo"), 6)
    prefix.observe_cut("b", reader(b"onetwothree"), 6)
    prefix.observe_cut("b", reader(b"onexxxthree"), 3)  # another log, which has to be cut
    assert history.broken == []
    prefix.observe_cut("b", reader(b"onetw"), 3)
    (finding,) = history.broken
    assert finding == "cut: b cuts its log at 3, and up to 5 it was confirmed"


def test_the_blank_at_a_files_end_may_be_cut_off_and_written_anew(
    prefix: ConfirmedPrefix, history: ReplicatedHistory
) -> None:
    blank = TOTAL_AND_MAGIC.pack(12, MAGIC_BLANK) + b"????"
    prefix.observe("a", reader(b"onetwo" + blank), 18)
    prefix.observe_cut("b", reader(b"onetwo" + blank + b"never confirmed"), 6)
    assert prefix.content == b"onetwo"
    prefix.observe("a", reader(b"onetwothree"), 11)
    assert history.broken == []
    prefix.observe_cut("a", reader(b"onetwothree"), 6)
    assert len(history.broken) == 1


def test_what_was_compared_is_not_read_again_until_the_log_may_be_another(
    prefix: ConfirmedPrefix, history: ReplicatedHistory
) -> None:
    prefix.observe("a", reader(b"onetwo"), 3)
    prefix.observe("a", reader(b"xxxtwo"), 6)
    assert (bytes(prefix.content), history.broken) == (b"onetwo", [])
    prefix.compare_anew("a")
    prefix.observe("a", reader(b"xxxtwo"), 6)
    assert history.broken[0].startswith("fork: a calls 6 bytes confirmed, and byte 0")


def test_what_follows_a_cut_is_compared(
    prefix: ConfirmedPrefix, history: ReplicatedHistory
) -> None:
    prefix.observe("a", reader(b"onetwo"), 6)
    prefix.observe("b", reader(b"onetw"), 5)
    prefix.observe_cut("b", reader(b"onetwx"), 3)
    assert history.broken == []
    prefix.observe("b", reader(b"onexxx"), 6)
    assert history.broken[0].startswith("fork: b calls 6 bytes confirmed, and byte 3")


def test_what_is_forgotten_may_be_another(
    prefix: ConfirmedPrefix, history: ReplicatedHistory
) -> None:
    prefix.observe("a", reader(b"onetwo"), 6)
    prefix.forget(1, 3)
    prefix.observe("b", reader(b"onexxx"), 6)
    assert (bytes(prefix.content), history.broken) == (b"onexxx", [])


def test_the_first_difference_is_an_index() -> None:
    assert first_difference(b"abc", b"abd") == 2
    assert first_difference(b"ab", b"abd") == 2
