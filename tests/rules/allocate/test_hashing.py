"""Strategies that hash names: which queues move, how many, and the bounds of a share."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.rules.allocate import GroupAssignment, Strategy, allocate
from roquet.rules.allocate.hashing import bounded_load, consistent_hash, md5_high, rendezvous
from roquet.rules.balance.rebalance_cost import moved_queues, owner_map

MEMBERS = [f"192.168.0.{n}@{1000 + 37 * n}" for n in range(20)]

counts = st.integers(1, 80)
memberships = st.integers(2, 20)


def queues_of(count: int) -> list[MessageQueue]:
    return [MessageQueue("Orders", f"broker-{'ab'[n % 2]}", n // 2) for n in range(count)]


def share_out(strategy: Strategy, count: int, members: int) -> GroupAssignment:
    return allocate(queues_of(count), MEMBERS[:members], strategy)


def test_the_hash_is_the_first_four_bytes_of_the_md5() -> None:
    assert md5_high("") == 0xD41D8CD9
    assert md5_high("\ud800") == md5_high("?"), "as Java writes half a pair of surrogates"


@pytest.mark.parametrize("strategy", [consistent_hash(), rendezvous], ids=["ring", "rendezvous"])
@given(counts, memberships)
def test_a_joining_member_takes_queues_from_every_other(
    strategy: Strategy, count: int, members: int
) -> None:
    before = share_out(strategy, count, members - 1)
    after = share_out(strategy, count, members)
    assert set(moved_queues(before, after)) == set(after[MEMBERS[members - 1]])


@pytest.mark.parametrize("strategy", [consistent_hash(100), rendezvous], ids=["ring", "rendezvous"])
def test_a_change_moves_about_one_in_n(strategy: Strategy) -> None:
    before, after = share_out(strategy, 2000, 9), share_out(strategy, 2000, 10)
    assert 120 <= len(moved_queues(before, after)) <= 280, "a tenth is 200"


def test_the_queues_of_one_that_leaves_go_to_all_the_others_alike() -> None:
    before, after = share_out(rendezvous, 4000, 10), share_out(rendezvous, 4000, 9)
    now = owner_map(after)
    heirs = Counter(now[queue] for queue in before[MEMBERS[9]])
    assert len(heirs) == 9
    assert max(heirs.values()) < 2 * min(heirs.values())


def test_rendezvous_is_as_even_as_chance() -> None:
    sizes = [len(share) for share in share_out(rendezvous, 4000, 10).values()]
    assert min(sizes) > 330, "400 less three and a half times the root of it"
    assert max(sizes) < 470


@given(counts, memberships, st.integers(100, 300))
def test_no_member_has_more_than_its_bound(count: int, members: int, percent: int) -> None:
    shares = share_out(bounded_load(percent), count, members)
    assert sum(len(share) for share in shares.values()) == count
    assert max(len(s) for s in shares.values()) * 100 * members < count * percent + 100 * members


def test_a_bound_of_an_even_share_is_even() -> None:
    sizes = {len(share) for share in share_out(bounded_load(100), 40, 10).values()}
    assert sizes == {4}


def test_a_wide_bound_is_the_plain_ring() -> None:
    assert share_out(bounded_load(10_000), 100, 5) == share_out(consistent_hash(), 100, 5)


def test_a_bound_moves_more_than_the_ring_and_far_fewer_than_average() -> None:
    queues = queues_of(1000)
    before, after = (allocate(queues, MEMBERS[:n], bounded_load()) for n in (19, 20))
    average_moves = moved_queues(allocate(queues, MEMBERS[:19]), allocate(queues, MEMBERS))
    assert len(moved_queues(before, after)) < len(average_moves) / 2


def test_a_member_listed_twice_has_twice_the_points_but_one_bound() -> None:
    places = {"c0-0": 0, "c0-1": 1, "c1-0": 2}
    ring = consistent_hash(1, lambda text: places.get(text, 1))
    queue = MessageQueue("t", "b", 0)
    assert ring([queue], ["c0", "c1"]) == {"c0": [], "c1": [queue]}, "the queue is at place 1"
    assert ring([queue], ["c0", "c0", "c1"]) == {"c0": [queue], "c1": []}
    shares = bounded_load(100)(queues_of(4), ["a", "a", "b"])
    assert {member: len(share) for member, share in shares.items()} == {"a": 2, "b": 2}


def test_an_own_hash_decides() -> None:
    last_digit = consistent_hash(1, lambda text: int(text.rstrip("]")[-1]))
    names = ["x-3", "x-7"]  # their points are named x-3-0 and x-7-0: both hash to 0
    shares = last_digit(queues_of(4), names)
    assert shares == {"x-3": [], "x-7": queues_of(4)}, "of two in one place the later has it"


def test_a_ring_without_places_gives_nobody_anything() -> None:
    assert share_out(consistent_hash(0), 4, 2) == {MEMBERS[0]: [], MEMBERS[1]: []}


def test_nonsense_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="-1 places"):
        consistent_hash(-1)
    with pytest.raises(UsageError, match="100 is the least"):
        bounded_load(99)
    with pytest.raises(UsageError, match="at least one place"):
        bounded_load(virtual_nodes=0)
