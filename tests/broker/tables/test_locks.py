from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.tables.locks import LIFETIME_MS, Locks
from roquet.model.queue import MessageQueue

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]


def test_a_free_queue_is_taken_and_an_owned_one_is_not() -> None:
    locks = Locks()
    assert locks.lock("group", "c1", QUEUES[:2], 0) == QUEUES[:2]
    assert locks.lock("group", "c2", QUEUES[1:3], 0) == QUEUES[2:3]


def test_groups_do_not_meet() -> None:
    locks = Locks()
    locks.lock("one", "c1", QUEUES, 0)
    assert locks.lock("two", "c2", QUEUES, 0) == QUEUES


def test_a_holder_renews_its_hold() -> None:
    locks = Locks()
    locks.lock("group", "c1", QUEUES, 0)
    assert locks.lock("group", "c1", QUEUES, LIFETIME_MS - 1) == QUEUES
    assert locks.lock("group", "c2", QUEUES, LIFETIME_MS + 1) == []


def test_a_hold_that_was_not_renewed_is_free_for_others() -> None:
    locks = Locks()
    locks.lock("group", "c1", QUEUES, 0)
    assert locks.lock("group", "c2", QUEUES, LIFETIME_MS - 1) == []
    assert locks.lock("group", "c2", QUEUES, LIFETIME_MS) == QUEUES


def test_only_the_holder_unlocks_a_queue() -> None:
    locks = Locks()
    locks.lock("group", "c1", QUEUES, 0)
    locks.unlock("group", "c2", QUEUES)
    assert locks.lock("group", "c2", QUEUES, 0) == []
    locks.unlock("group", "c1", QUEUES)
    assert locks.lock("group", "c2", QUEUES, 0) == QUEUES


def test_unlocking_a_queue_that_is_not_held_changes_nothing() -> None:
    Locks().unlock("group", "c1", QUEUES)


def test_ended_holds_are_forgotten() -> None:
    locks = Locks()
    locks.lock("group", "c1", QUEUES[:1], 0)
    locks.lock("group", "c2", QUEUES[1:2], 10)
    locks.expire(LIFETIME_MS)
    assert locks.lock("group", "c3", QUEUES[:2], LIFETIME_MS) == QUEUES[:1]


MEMBERS = st.sampled_from(["c1", "c2", "c3"])
STEPS = st.tuples(MEMBERS, st.sets(st.sampled_from(QUEUES)), st.integers(0, 40_000), st.booleans())


@given(st.lists(STEPS))
def test_two_members_never_hold_one_queue(steps: list[Any]) -> None:
    locks, now = Locks(), 0
    held: dict[MessageQueue, tuple[str, int]] = {}
    for member, queues, pause, unlocks in steps:
        now += pause
        if unlocks:
            locks.unlock("group", member, queues)
            held = {
                q: (m, until) for q, (m, until) in held.items() if m != member or q not in queues
            }
            continue
        for queue in locks.lock("group", member, queues, now):
            owner, until = held.get(queue, (member, 0))
            assert owner == member or until <= now
            held[queue] = (member, now + LIFETIME_MS)


def test_a_group_is_ordered_while_a_member_holds_a_lock() -> None:
    locks = Locks()
    assert not locks.has_any("group", 0)
    locks.lock("group", "c1", [QUEUES[0]], 0)
    assert locks.has_any("group", LIFETIME_MS - 1)
    assert not locks.has_any("group", LIFETIME_MS)
    assert not locks.has_any("other", 0)


def test_a_member_that_left_holds_no_locks() -> None:
    locks = Locks()
    locks.lock("one", "c1", QUEUES[:2], 0)
    locks.lock("one", "c2", QUEUES[2:], 0)
    locks.lock("two", "c1", QUEUES, 0)
    locks.release("one", "c1")
    locks.release("unknown", "c1")
    assert locks.lock("one", "c3", QUEUES, 0) == QUEUES[:2]
    assert locks.lock("two", "c3", QUEUES, 0) == [], "in another group it is still there"


def test_a_broker_that_no_longer_leads_holds_no_locks() -> None:
    locks = Locks()
    locks.lock("one", "c1", QUEUES, 0)
    locks.clear()
    assert not locks.has_any("one", 0)
    assert locks.lock("one", "c2", QUEUES, 0) == QUEUES
