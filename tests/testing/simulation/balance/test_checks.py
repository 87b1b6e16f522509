"""Checks: each finds its own anomaly, and forgives what at-least-once allows."""

from roquet.model.queue import MessageQueue
from roquet.testing.simulation.balance import checks
from roquet.testing.simulation.balance.history import (
    AcknowledgedMessage,
    BalanceHistory,
    HandlingAttempt,
    QueueOwnership,
)

QUEUE = MessageQueue("flights", "broker-1", 0)


def history(*handlings: HandlingAttempt, acknowledged: int = 9) -> BalanceHistory:
    made = BalanceHistory(lambda: 0)
    made.handlings += handlings
    made.sent += [AcknowledgedMessage(f"key0:{n}", QUEUE, n) for n in range(acknowledged)]
    return made


def handled(number: int, began: int, ended: int | None, member: str = "m1") -> HandlingAttempt:
    return HandlingAttempt(member, f"key0:{number}", "key0", number, QUEUE, number, began, ended)


def test_what_was_acknowledged_and_never_handled_is_lost() -> None:
    assert list(checks.lost(["key0:1"])) == ["lost: key0:1 was acknowledged and never handled"]


def test_a_queue_has_one_owner() -> None:
    assert list(checks.owners({QUEUE: ["m1"]})) == []
    assert "held by nobody" in next(checks.owners({QUEUE: []}))
    assert "held by m1 and m2" in next(checks.owners({QUEUE: ["m1", "m2"]}))


def test_a_message_that_begins_before_one_ahead_is_done_is_out_of_order() -> None:
    assert list(checks.order(history(handled(0, 1, 2), handled(1, 2, 3), acknowledged=2))) == []
    early = list(checks.order(history(handled(0, 1, 5), handled(1, 4, 6), acknowledged=2)))
    assert early == ["order: m1 began key0:1 before key0:0 was done"]
    skipped = list(checks.order(history(handled(1, 4, 6), acknowledged=2)))
    assert skipped == early


def test_what_comes_again_is_in_order_when_it_goes_on_from_there() -> None:
    again = history(*(handled(n, t, t + 1) for t, n in enumerate([0, 1, 2, 1, 2, 3])))
    again.sent = again.sent[:4]
    assert list(checks.order(again)) == []


def test_a_message_that_was_never_acknowledged_may_be_anywhere() -> None:
    strange = history(handled(0, 1, 2), handled(2, 3, 4), handled(1, 5, 6))
    strange.sent = [
        AcknowledgedMessage("key0:0", QUEUE, 0),
        AcknowledgedMessage("key0:2", QUEUE, 1),
    ]
    assert list(checks.order(strange)) == []


def test_two_members_at_work_on_one_queue_are_seen_unless_it_is_forgiven() -> None:
    both = history(handled(0, 1, 9), handled(1, 5, 6, "m2"))
    assert len(list(checks.together(both, []))) == 1
    assert list(checks.together(both, [(0, 10)])) == []
    assert list(checks.together(history(handled(0, 1, 5), handled(1, 5, 6, "m2")), [])) == []


def test_a_dead_members_work_ended_with_it() -> None:
    dead = history(handled(0, 1, None), handled(0, 5, 6, "m2"))
    dead.holdings.append(QueueOwnership("m1", QUEUE, 0, 4, "killed"))
    assert list(checks.together(dead, [])) == []


def test_a_message_handled_twice_without_a_reason_is_doubled() -> None:
    twice = history(handled(0, 1, 2), handled(0, 7, 8, "m2"))
    twice.holdings += [QueueOwnership("m1", QUEUE, 0, 4, "left"), QueueOwnership("m2", QUEUE, 5)]
    assert len(list(checks.doubled(twice, calm=True))) == 1


def test_a_death_or_another_view_of_the_group_excuses_a_double() -> None:
    twice = history(handled(0, 1, 2), handled(0, 7, 8, "m2"))
    twice.holdings += [QueueOwnership("m1", QUEUE, 0, 4, "killed"), QueueOwnership("m2", QUEUE, 5)]
    assert list(checks.doubled(twice, calm=True)) == []
    twice.holdings = [QueueOwnership("m1", QUEUE, 0, 6, "revoked"), QueueOwnership("m2", QUEUE, 5)]
    assert list(checks.doubled(twice, calm=True)) == []


def test_unrest_excuses_a_double_in_a_harsh_world_only() -> None:
    twice = history(handled(0, 1, 2), handled(0, 7, 8, "m2"))
    twice.unrest.append((3, "CRASH"))
    assert list(checks.doubled(twice, calm=False)) == []
    assert len(list(checks.doubled(twice, calm=True))) == 1


def test_a_failed_handling_is_not_a_first_one() -> None:
    failed = handled(0, 1, 2)
    failed.failed = True
    assert list(checks.doubled(history(failed, handled(0, 3, 4)), calm=True)) == []
