from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.transaction import (
    CheckVerdict,
    EndedHalfMessages,
    HalfMessageFacts,
    HalfMessagePosition,
    OpMessages,
    TransactionFault,
    TransactionPolicy,
    check_verdict,
    immunity_ms,
    is_too_late,
    mismatch,
    offsets_of,
    op_bodies,
    times_checked,
)

POLICY = TransactionPolicy(timeout_ms=6_000, check_max=15, reserved_ms=72 * 3_600_000)
NOW = 1_700_000_000_000


def half(age_ms: int, **fields: Any) -> HalfMessageFacts:
    values = {"born_ms": NOW - age_ms, "stored_ms": NOW - max(age_ms, 1), **fields}
    return HalfMessageFacts(**values)


def judged(age_ms: int, **fields: Any) -> CheckVerdict:
    return check_verdict(half(age_ms, **fields), POLICY, NOW, NOW)


@pytest.mark.parametrize(
    ("age_ms", "wanted"),
    [
        (1, CheckVerdict.LATER),
        (6_000, CheckVerdict.LATER),
        (6_001, CheckVerdict.CHECK),
        (POLICY.reserved_ms, CheckVerdict.CHECK),
        (POLICY.reserved_ms + 1, CheckVerdict.GIVE_UP),
    ],
)
def test_age_decides_about_a_message_without_checks(age_ms: int, wanted: CheckVerdict) -> None:
    assert judged(age_ms) == wanted


@pytest.mark.parametrize("behind_ms", [POLICY.reserved_ms + 1, 10 * POLICY.reserved_ms])
def test_a_half_message_with_a_clock_days_behind_is_checked_like_others(behind_ms: int) -> None:
    assert judged(behind_ms, stored_ms=NOW - 7_000) == CheckVerdict.CHECK
    assert judged(behind_ms, stored_ms=NOW - 7_000, checked="14") == CheckVerdict.CHECK
    assert judged(behind_ms, stored_ms=NOW - 7_000, checked="15") == CheckVerdict.GIVE_UP


def test_an_old_half_message_is_given_up_whatever_its_senders_clock() -> None:
    stored_ms = NOW - POLICY.reserved_ms
    assert judged(-60_000, stored_ms=stored_ms) == CheckVerdict.CHECK
    assert judged(-60_000, stored_ms=stored_ms - 1) == CheckVerdict.GIVE_UP


def test_no_sender_can_have_it_left_alone_for_longer_than_messages_are_kept() -> None:
    seconds = str(POLICY.reserved_ms // 1_000 + 60)
    recent = {"stored_ms": NOW - 30_000, "immunity": seconds}
    assert judged(POLICY.reserved_ms, **recent) == CheckVerdict.KEEP
    assert judged(POLICY.reserved_ms + 1, **recent) == CheckVerdict.CHECK


def test_a_half_message_from_the_future_is_checked_at_once() -> None:
    assert judged(-60_000, stored_ms=NOW - 1) == CheckVerdict.CHECK


def test_messages_stored_since_the_round_began_wait_for_the_next() -> None:
    assert judged(10_000, stored_ms=NOW) == CheckVerdict.LATER
    assert judged(10_000, stored_ms=NOW - 1) == CheckVerdict.CHECK


@pytest.mark.parametrize("checked", ["1", "14", "-1", "many", ""])
def test_a_half_message_is_checked_up_to_the_limit(checked: str) -> None:
    assert judged(10_000, checked=checked) == CheckVerdict.CHECK
    assert judged(10_000, checked="15") == CheckVerdict.GIVE_UP
    assert judged(1, checked="16") == CheckVerdict.GIVE_UP, "however young it is"


def test_a_sender_may_want_it_left_alone_for_longer_or_for_less() -> None:
    assert judged(59_000, immunity="60") == CheckVerdict.KEEP
    assert judged(60_000, immunity="60") == CheckVerdict.KEEP
    assert judged(60_001, immunity="60") == CheckVerdict.CHECK
    assert judged(3_000, immunity="1") == CheckVerdict.CHECK
    assert judged(10, immunity="-5") == CheckVerdict.CHECK
    assert judged(5_000, immunity="soon") == CheckVerdict.KEEP
    assert judged(7_000, immunity="soon") == CheckVerdict.CHECK


def test_the_immunity_that_cannot_be_read_is_the_timeout() -> None:
    assert immunity_ms("60", 6_000) == 60_000
    for text in ("", "-1", "x", "1.5", "9" * 20):
        assert immunity_ms(text, 6_000) == 6_000


def test_an_end_comes_too_late_only_where_its_sender_set_a_time() -> None:
    assert not is_too_late(half(10**9), 6_000, NOW)
    assert not is_too_late(half(10**9, immunity=""), 6_000, NOW)
    assert not is_too_late(half(60_000, immunity="60"), 6_000, NOW)
    assert is_too_late(half(60_001, immunity="60"), 6_000, NOW)
    assert not is_too_late(half(5_000, immunity="1"), 6_000, NOW), "never before the timeout"


def test_checks_are_counted_by_a_number() -> None:
    assert [times_checked(text) for text in (None, "", "x", "0", "7")] == [0, 0, 0, 0, 7]


def test_an_end_has_to_agree_in_everything() -> None:
    stored = HalfMessagePosition("g", 5, 700)
    assert mismatch(stored, HalfMessagePosition("g", 5, 700)) is None
    assert mismatch(stored, HalfMessagePosition("h", 6, 701)) == TransactionFault.GROUP
    assert mismatch(stored, HalfMessagePosition("g", 6, 701)) == TransactionFault.OFFSET
    assert mismatch(stored, HalfMessagePosition("g", 5, 701)) == TransactionFault.POSITION
    assert (
        mismatch(HalfMessagePosition(None, 5, 700), HalfMessagePosition("", 5, 700))
        == TransactionFault.GROUP
    )


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"12,15,", [12, 15]),
        (b"12", [12]),
        (b"", []),
        (b",,", []),
        (b"1,x,-2, 3 ,4.5,\xff,", [1, 3]),
        (b"9" * 19, [int("9" * 19)]),
        (b"9" * 20, []),
    ],
)
def test_the_body_of_an_op_message(body: bytes, offsets: list[int]) -> None:
    assert offsets_of(body) == offsets


@given(st.lists(st.integers(0, 2**62)), st.integers(1, 100))
def test_op_messages_name_each_offset_once_and_end_when_full(offsets: list[int], size: int) -> None:
    bodies = list(op_bodies(offsets, size))
    assert [offset for body in bodies for offset in offsets_of(body)] == offsets
    assert all(len(body) >= size for body in bodies[:-1])
    assert all(len(body) < size + 20 for body in bodies)


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(0, 10))
def test_halves_are_a_set_of_what_has_ended(ended: list[int], start: int) -> None:
    halves, model = EndedHalfMessages(start), set(range(start))
    for number, offset in enumerate(ended):
        halves.end(offset)
        model.add(offset)
        if number % 5 == 4:
            first = min(set(range(50)) - model)
            assert halves.advance() == halves.start == first
            assert halves.advance() == first
        assert halves.next_open(offset) == min(set(range(offset, 50)) - model)
    assert all(halves.is_ended(offset) == (offset in model) for offset in range(40))
    assert len(halves) <= 31


@given(st.integers(0, 50), st.lists(st.integers(0, 40)), st.integers(0, 60))
def test_forgotten_half_messages_count_as_ended(start: int, ended: list[int], until: int) -> None:
    halves = EndedHalfMessages(start)
    for offset in ended:
        halves.end(offset)
    before = [halves.is_ended(offset) for offset in range(90)]
    halves.forget(until)
    after = [halves.is_ended(offset) for offset in range(90)]
    assert after == [ended or offset < until for offset, ended in enumerate(before)]


def test_ops_are_read_again_from_the_first_that_says_something_new() -> None:
    ops = OpMessages(3)
    assert ops.advance(100) == 3, "nothing to read"
    ops.note(3, [10, 11])
    ops.note(4, [12])
    ops.note(5, [])
    ops.note(6, [2, 20])
    assert ops.advance(11) == 3
    assert ops.advance(12) == 4
    assert ops.advance(13) == 6
    assert len(ops) == 1
    assert ops.advance(21) == 7
    assert len(ops) == 0


def test_a_store_time_in_the_future_does_not_block_later_messages() -> None:
    ahead = NOW + 30 * 86_400_000
    assert judged(10_000, stored_ms=ahead) == CheckVerdict.CHECK


def test_a_born_time_far_in_the_future_does_not_postpone_checks() -> None:
    assert judged(-30 * 86_400_000, immunity="60") == CheckVerdict.CHECK
    assert judged(-30_000, immunity="60") == CheckVerdict.KEEP
