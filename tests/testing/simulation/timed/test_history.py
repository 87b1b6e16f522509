"""The ledger: lines that repeat, facts that checks read."""

import msgspec

from roquet.testing.simulation.timed.history import (
    BILLING,
    DatabaseState,
    TimedAttempt,
    TimedHistory,
)
from roquet.testing.simulation.timed.scenario import SendKind, SendOperation, TransactionCourse

ERRAND = SendOperation(
    name="e1", at_ms=0, kind=SendKind.TIMER, failures=0, tag="a", weight=1, wait_ms=500
)


def written() -> TimedHistory:
    now = iter(range(1_000, 2_000))
    history = TimedHistory(lambda: next(now))
    history.acknowledge(ERRAND, 1_000)
    handling = history.begin(TimedAttempt("m1", BILLING, "e1", 0, 1_500))
    history.end(handling, failed=False)
    return history


def test_the_same_lines_have_the_same_digest() -> None:
    assert written().digest() == written().digest()
    other = written()
    other.say("one more")
    assert other.digest() != written().digest()


def test_it_knows_what_is_due_who_is_at_work_and_what_is_done() -> None:
    history = written()
    assert history.dues == [1_500]
    assert history.handled[BILLING] == {"e1"}
    assert not history.at_work
    history.begin(TimedAttempt("m2", BILLING, "e2", 0, 1_500))
    assert history.at_work
    history.dead("m2")
    assert not history.at_work


def test_a_failed_handling_is_no_success() -> None:
    history = written()
    history.end(history.begin(TimedAttempt("m1", BILLING, "e2", 0, 1_500)), failed=True)
    assert history.handled[BILLING] == {"e1"}


def test_of_a_transaction_the_database_says_whether_it_is_to_come() -> None:
    history = written()
    assert history.is_to_come(ERRAND)
    history.decide("e1", DatabaseState.DROPPED, "shop")
    assert not history.is_to_come(ERRAND)
    history.decide("e1", DatabaseState.KEPT, "shop")
    assert history.is_to_come(ERRAND)
    assert not history.is_to_come(msgspec.structs.replace(ERRAND, course=TransactionCourse.NEVER))
    assert not history.is_to_come(msgspec.structs.replace(ERRAND, name="unheard"))
