"""The ledger: lines that repeat, facts that checks read."""

import msgspec

from roquet.testing.simulation.day.ledger import BILLING, Fate, Handling, Ledger
from roquet.testing.simulation.day.plan import Course, Errand, Kind

ERRAND = Errand(name="e1", at_ms=0, kind=Kind.TIMER, failures=0, tag="a", weight=1, wait_ms=500)


def written() -> Ledger:
    now = iter(range(1_000, 2_000))
    ledger = Ledger(lambda: next(now))
    ledger.acknowledge(ERRAND, 1_000)
    handling = ledger.begin(Handling("m1", BILLING, "e1", 0, 1_500))
    ledger.end(handling, failed=False)
    return ledger


def test_the_same_lines_have_the_same_digest() -> None:
    assert written().digest() == written().digest()
    other = written()
    other.say("one more")
    assert other.digest() != written().digest()


def test_it_knows_what_is_due_who_is_at_work_and_what_is_done() -> None:
    ledger = written()
    assert ledger.dues == [1_500]
    assert ledger.handled[BILLING] == {"e1"}
    assert not ledger.at_work
    ledger.begin(Handling("m2", BILLING, "e2", 0, 1_500))
    assert ledger.at_work
    ledger.dead("m2")
    assert not ledger.at_work


def test_a_failed_handling_is_no_success() -> None:
    ledger = written()
    ledger.end(ledger.begin(Handling("m1", BILLING, "e2", 0, 1_500)), failed=True)
    assert ledger.handled[BILLING] == {"e1"}


def test_of_a_transaction_the_database_says_whether_it_is_to_come() -> None:
    ledger = written()
    assert ledger.is_to_come(ERRAND)
    ledger.decide("e1", Fate.DROPPED, "shop")
    assert not ledger.is_to_come(ERRAND)
    ledger.decide("e1", Fate.KEPT, "shop")
    assert ledger.is_to_come(ERRAND)
    assert not ledger.is_to_come(msgspec.structs.replace(ERRAND, course=Course.NEVER))
    assert not ledger.is_to_come(msgspec.structs.replace(ERRAND, name="unheard"))
