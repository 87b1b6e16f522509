from hypothesis import given
from hypothesis import strategies as st

from roquet.model.queue import MessageQueue
from roquet.rules.balance import rebalance

QUEUES = [MessageQueue("t", "b", i) for i in range(6)]
subsets = st.sets(st.sampled_from(QUEUES))


def test_queues_both_held_and_assigned_are_left_alone() -> None:
    change = rebalance.difference(QUEUES[:3], QUEUES[2:5])
    assert (change.drop, change.start) == (tuple(QUEUES[:2]), tuple(QUEUES[3:5]))


@given(subsets, subsets)
def test_dropping_and_starting_gives_the_assignment(
    held: set[MessageQueue], assigned: set[MessageQueue]
) -> None:
    change = rebalance.difference(held, assigned)
    assert held - set(change.drop) | set(change.start) == assigned
    assert (not change.drop and not change.start) == (held == assigned)


def test_a_share_is_the_members_part_of_the_whole() -> None:
    assert rebalance.member_queues("b", QUEUES, ["b", "a"]) == QUEUES[3:]


def test_a_topic_without_queues_leaves_nothing() -> None:
    assert rebalance.member_queues("a", [], ["a"]) == ()


def test_a_list_that_does_not_know_me_is_not_trusted() -> None:
    assert rebalance.member_queues("me", QUEUES, ["a", "b"]) is None
    assert rebalance.member_queues("me", QUEUES, []) is None


def test_a_look_that_did_not_end_well_is_repeated_soon() -> None:
    assert [rebalance.next_rebalance_ms(n) for n in (0, 1, 2, 3, 4, 99)] == [
        20_000,
        250,
        500,
        1_000,
        1_000,
        1_000,
    ]
    assert [rebalance.next_rebalance_ms(n, 300) for n in (0, 1, 9)] == [300, 250, 300]


def test_a_member_whose_queues_another_still_holds_looks_again_when_the_lock_may_be_free() -> None:
    assert [rebalance.next_rebalance_ms(n, is_locked_out=True) for n in (0, 1, 9)] == [
        20_000, rebalance.LOCK_RETRY_MS, rebalance.LOCK_RETRY_MS,
    ]  # fmt: skip
    assert rebalance.next_rebalance_ms(1, 300, is_locked_out=True) == 300
