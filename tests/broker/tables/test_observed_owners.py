from roquet.broker.tables.observed_owners import ObservedOwners
from roquet.rules.balance.handover import HANDOVER_MS, SETTLED_MS

Q = ("orders", 0)


def working(*members: str) -> ObservedOwners:
    """A group of which each worked on the queue in turn, a minute ago."""
    holders = ObservedOwners()
    for member in members:
        holders.taken("g", Q, member, 0)
        holders.seen("g", Q, member, 0)
    return holders


def test_the_first_owner_of_a_queue_does_not_wait() -> None:
    assert ObservedOwners().taken("g", Q, "a", 0) == (None, 0)


def test_a_new_owner_waits_for_the_former_after_a_change() -> None:
    holders = working("a")
    holders.changed("g", 60_000)
    assert holders.taken("g", Q, "b", 60_005) == ("a", HANDOVER_MS)


def test_an_unchanged_owner_does_not_wait() -> None:
    assert working("a").taken("g", Q, "b", 5) == (None, 0)


def test_a_new_owner_does_not_wait_after_the_commit() -> None:
    holders = working("a")
    holders.changed("g", 60_000)
    holders.committed("g", Q, "a", 60_002)
    assert holders.taken("g", Q, "b", 60_005) == (None, 0)


def test_a_new_owner_does_not_wait_for_a_member_that_left() -> None:
    holders = working("a")
    holders.changed("g", 60_000)
    holders.left("g", "a")
    assert holders.taken("g", Q, "b", 60_005) == (None, 0)


def test_a_new_owner_of_many_queues_waits_a_second_in_all() -> None:
    holders, other = working("a"), ("orders", 1)
    holders.seen("g", other, "a", 0)
    holders.changed("g", 60_000)
    assert holders.taken("g", Q, "b", 60_000) == ("a", HANDOVER_MS)
    assert holders.taken("g", other, "b", 61_000) == ("a", 0)


def test_a_new_owner_does_not_wait_long_after_the_change() -> None:
    holders = working("a")
    holders.changed("g", 60_000)
    assert holders.taken("g", Q, "b", 60_001 + SETTLED_MS) == ("a", 0)


def test_a_queue_that_returns_to_its_owner_does_not_wait() -> None:
    holders = working("a", "b")
    holders.changed("g", 60_000)
    assert holders.taken("g", Q, "b", 60_000) == (None, 0)


def test_owners_are_seen_by_what_they_do() -> None:
    holders = working("a")
    assert holders.owners("g", Q, 1) == ["a"]
    holders.taken("g", Q, "b", 10)
    assert holders.owners("g", Q, 10) == ["a"], "b has only asked"
    holders.committed("g", Q, "b", 20)
    assert holders.owners("g", Q, 20) == ["b"]
    holders.committed("g", Q, "a", 500)
    assert holders.owners("g", Q, 5_000) == ["b"], "a's last commit"
    holders.seen("g", Q, "a", 6_000)
    assert holders.owners("g", Q, 6_000) == ["a", "b"], "a pulls on"


def test_a_commit_of_the_losers_does_not_take_the_queue_back() -> None:
    holders = working("a", "b")
    holders.committed("g", Q, "a", 10)
    holders.changed("g", 20)
    assert holders.taken("g", Q, "c", 20) == ("b", HANDOVER_MS)


def test_a_group_that_has_ended_is_forgotten() -> None:
    holders = working("a")
    assert holders.groups() == ["g"]
    holders.ended("g")
    assert holders.groups() == []
    assert holders.owners("g", Q, 0) == []
    holders.changed("g", 0)
    holders.left("g", "a")
    assert holders.groups() == []
