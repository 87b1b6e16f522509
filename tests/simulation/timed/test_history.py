"""TimedHistory: what is due, what the database says, and what must be delivered."""

import msgspec

from roquet.model.queue import MessageQueue
from roquet.rules.delay.delay_levels import DEFAULT_LEVELS
from simulation.history import HandlingAttempt
from simulation.timed.history import DatabaseState, TimedHistory
from simulation.timed.scenario import (
    RETRIES,
    SendKind,
    SendOperation,
    TransactionCourse,
)

TIMER = SendOperation(
    name="e1", at_ms=0, kind=SendKind.TIMER, failures=0, tag="a", weight=1, wait_ms=500
)


def attempt(tries: int) -> HandlingAttempt:
    return HandlingAttempt(
        consumer="c1", group="billing", name="e1", queue=MessageQueue("orders", "b", 0),
        offset=0, tries=tries, began_ms=1_000,
    )  # fmt: skip


def at(now_ms: int) -> TimedHistory:
    return TimedHistory(lambda: now_ms)


def test_a_message_that_waits_is_due_after_its_time() -> None:
    history = at(1_200)
    history.acknowledge_operation(TIMER, 1_000)
    assert history.dues == [1_500]
    assert history.lines[-1].endswith("stored e1 at a time")


def test_a_failed_attempt_is_due_again_after_its_pause_but_for_the_last() -> None:
    history = at(0)
    history.end(history.begin(attempt(0)), failed=True)
    history.end(history.begin(attempt(RETRIES)), failed=True)
    history.end(history.begin(attempt(1)), failed=False)
    assert history.dues == [DEFAULT_LEVELS[2]]


def test_a_broker_that_crashed_is_due_back() -> None:
    history = at(7)
    history.broker_crashed("b", 90)
    history.broker_returned("b")
    assert history.dues == [90, 7]


def test_an_acknowledged_message_must_be_delivered() -> None:
    history = at(0)
    assert not history.must_be_delivered(TIMER)
    history.acknowledge_operation(TIMER, 0)
    assert history.must_be_delivered(TIMER)


def test_a_message_of_a_transaction_must_be_delivered_once_its_work_is_done() -> None:
    history = at(0)
    history.acknowledge_operation(TIMER, 0)
    expected = {
        DatabaseState.OPEN: False,
        DatabaseState.ROLLED_BACK: False,
        DatabaseState.COMMITTED: True,
    }
    for state, must_be in expected.items():
        history.write_database("e1", state, "10.0.4.1")
        assert history.must_be_delivered(TIMER) == must_be
    never = msgspec.structs.replace(TIMER, course=TransactionCourse.NEVER_DECIDE)
    assert not history.must_be_delivered(never)
