from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.balance.handover import (
    ACTIVITY_MS,
    HANDOVER_MS,
    SETTLED_MS,
    QueueActivity,
    active_owners,
    handover_wait_ms,
    previous_owner,
)


def test_a_queue_without_observations_has_no_owner() -> None:
    assert active_owners({}, 0) == []
    assert active_owners({"a": QueueActivity()}, 0) == [], "it asked where to read on, no more"


def test_the_owner_is_the_member_that_began_last() -> None:
    holds = {
        "a": QueueActivity(begun_ms=0, seen_ms=900),
        "b": QueueActivity(begun_ms=1_000, seen_ms=1_000),
    }
    assert active_owners(holds, 1_000) == ["b"]


def test_the_later_of_two_simultaneous_members_owns() -> None:
    holds = {"b": QueueActivity(begun_ms=5, seen_ms=5), "a": QueueActivity(begun_ms=5, seen_ms=5)}
    assert active_owners(holds, 5) == ["a"]


def test_a_losers_last_commit_does_not_make_it_an_owner() -> None:
    began = 1_000
    holds = {
        "a": QueueActivity(begun_ms=0, seen_ms=began + HANDOVER_MS),
        "b": QueueActivity(begun_ms=began, seen_ms=began),
    }
    assert active_owners(holds, 3_000) == ["b"]


def test_a_loser_that_keeps_working_is_a_second_owner_for_a_while() -> None:
    seen = 1_000 + HANDOVER_MS + 1
    holds = {
        "z": QueueActivity(begun_ms=0, seen_ms=seen),
        "b": QueueActivity(begun_ms=1_000, seen_ms=9_000),
    }
    assert active_owners(holds, 9_000) == ["b", "z"]
    assert active_owners(holds, seen + ACTIVITY_MS) == ["b", "z"]
    assert active_owners(holds, seen + ACTIVITY_MS + 1) == ["b"]


def test_an_owner_that_is_busy_for_long_stays_the_owner() -> None:
    assert active_owners({"a": QueueActivity(begun_ms=0, seen_ms=0)}, 10 * ACTIVITY_MS) == ["a"]


def test_a_taker_waits_for_the_last_one_at_the_queue() -> None:
    assert previous_owner({}, "b") is None
    assert previous_owner({"b": QueueActivity()}, "b") is None, "it was its own"
    assert previous_owner({"b": QueueActivity(), "a": QueueActivity()}, "b") == "a"
    assert previous_owner({"a": QueueActivity(), "b": QueueActivity()}, "b") is None


def test_a_taker_waits_a_second_and_no_more_for_all_its_queues() -> None:
    assert handover_wait_ms(10_000, 9_990, 10_000) == HANDOVER_MS
    assert handover_wait_ms(10_400, 9_990, 10_000) == HANDOVER_MS - 400
    assert handover_wait_ms(12_000, 9_990, 10_000) == 0


def test_long_after_a_change_no_member_waits() -> None:
    assert handover_wait_ms(SETTLED_MS, 0, SETTLED_MS) == HANDOVER_MS
    assert handover_wait_ms(SETTLED_MS + 1, 0, SETTLED_MS + 1) == 0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_patience_is_never_more_than_a_hand_over(now: int, ago: int, since: int) -> None:
    assert 0 <= handover_wait_ms(now, now - ago, now - since) <= HANDOVER_MS
