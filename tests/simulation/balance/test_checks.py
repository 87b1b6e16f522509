"""Checks of the balance workload: each finds its own anomaly, and forgives what may happen."""

from roquet.model.queue import MessageQueue
from simulation.balance import checks
from simulation.balance.history import BalanceHistory, QueueOwnership
from simulation.history import AcknowledgedMessage, Disturbance, HandlingAttempt
from simulation.scenario import Fault

QUEUE = MessageQueue("flights", "broker-1", 0)


def history(*attempts: HandlingAttempt, acknowledged: tuple[int, ...] = ()) -> BalanceHistory:
    """A history with these attempts, in which messages 0 to 8 are acknowledged, or those named."""
    made = BalanceHistory(lambda: 0)
    made.attempts += attempts
    for number in acknowledged or range(9):
        name = f"key0:{number}"
        made.acknowledged[name] = AcknowledgedMessage(name, 0, 0)
    return made


def attempt(number: int, began: int, ended: int | None, consumer: str = "c1") -> HandlingAttempt:
    return HandlingAttempt(
        consumer=consumer, group="billing", name=f"key0:{number}", queue=QUEUE, offset=number,
        tries=0, began_ms=began, ended_ms=ended,
    )  # fmt: skip


def test_an_acknowledged_message_that_was_never_handled_is_lost() -> None:
    assert list(checks.lost(["key0:1"])) == ["lost: key0:1 was acknowledged and never handled"]


def test_a_queue_has_one_owner() -> None:
    assert list(checks.owners({QUEUE: ["c1"]})) == []
    assert "held by nobody" in next(checks.owners({QUEUE: []}))
    assert "held by c1 and c2" in next(checks.owners({QUEUE: ["c1", "c2"]}))


def test_a_message_that_begins_before_one_ahead_is_done_is_out_of_order() -> None:
    in_order = history(attempt(0, 1, 2), attempt(1, 2, 3), acknowledged=(0, 1))
    assert list(checks.order(in_order)) == []
    early = history(attempt(0, 1, 5), attempt(1, 4, 6), acknowledged=(0, 1))
    finding = "order: c1 began key0:1 before key0:0 was done"
    assert list(checks.order(early)) == [finding]
    skipped = history(attempt(1, 4, 6), acknowledged=(0, 1))
    assert list(checks.order(skipped)) == [finding]


def test_messages_that_are_repeated_from_an_earlier_one_on_are_in_order() -> None:
    attempts = [attempt(n, t, t + 1) for t, n in enumerate([0, 1, 2, 1, 2, 3])]
    assert list(checks.order(history(*attempts, acknowledged=(0, 1, 2, 3)))) == []


def test_a_message_that_was_never_acknowledged_may_be_anywhere() -> None:
    strange = history(attempt(0, 1, 2), attempt(2, 3, 4), attempt(1, 5, 6), acknowledged=(0, 2))
    assert list(checks.order(strange)) == []


def test_two_consumers_at_work_on_one_queue_are_seen_unless_it_is_forgiven() -> None:
    both = history(attempt(0, 1, 9), attempt(1, 5, 6, "c2"))
    assert len(list(checks.together(both, []))) == 1
    assert list(checks.together(both, [(0, 10)])) == []
    assert list(checks.together(history(attempt(0, 1, 5), attempt(1, 5, 6, "c2")), [])) == []


def test_the_work_of_a_killed_consumer_ended_with_it() -> None:
    killed = history(attempt(0, 1, None), attempt(0, 5, 6, "c2"))
    killed.ownerships.append(QueueOwnership("c1", QUEUE, 0, 4, "killed"))
    assert list(checks.together(killed, [])) == []


def test_a_message_handled_twice_without_a_reason_is_doubled() -> None:
    twice = history(attempt(0, 1, 2), attempt(0, 7, 8, "c2"))
    twice.ownerships += [QueueOwnership("c1", QUEUE, 0, 4, "left"), QueueOwnership("c2", QUEUE, 5)]
    assert len(list(checks.doubled(twice, calm=True))) == 1


def test_a_kill_or_another_view_of_the_group_excuses_a_duplicate() -> None:
    twice = history(attempt(0, 1, 2), attempt(0, 7, 8, "c2"))
    second = QueueOwnership("c2", QUEUE, 5)
    twice.ownerships = [QueueOwnership("c1", QUEUE, 0, 4, "killed"), second]
    assert list(checks.doubled(twice, calm=True)) == []
    twice.ownerships = [QueueOwnership("c1", QUEUE, 0, 6, "revoked"), second]
    assert list(checks.doubled(twice, calm=True)) == []


def test_a_fault_excuses_a_duplicate_in_a_harsh_scenario_only() -> None:
    twice = history(attempt(0, 1, 2), attempt(0, 7, 8, "c2"))
    twice.disturbances.append(Disturbance(3, Fault.CRASH, ("b1",)))
    assert list(checks.doubled(twice, calm=False)) == []
    assert len(list(checks.doubled(twice, calm=True))) == 1


def test_a_failed_attempt_is_not_a_first_one() -> None:
    failed = attempt(0, 1, 2)
    failed.failed = True
    assert list(checks.doubled(history(failed, attempt(0, 3, 4)), calm=True)) == []
