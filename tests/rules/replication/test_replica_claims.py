import pytest

from roquet.rules.replication.replica_claims import (
    ConnectionPlace,
    ReplicaClaim,
    may_replace,
    most_dispensable,
    next_holder,
    patience_ms,
)
from roquet.rules.replication.sync_state import ReplicaReportFacts, SentFrame


def claim(caught_up_ms: int | None) -> ReplicaClaim:
    facts = ReplicaReportFacts(broker_id=2, report=100)
    return ReplicaClaim(facts=facts, sent=SentFrame(100, 0), caught_up_ms=caught_up_ms)


def test_an_idle_replica_is_no_longer_silent_than_a_master_is_patient() -> None:
    assert patience_ms(5_000) == 7_500


@pytest.mark.parametrize(
    ("holder_ms", "claim_ms", "replaces"),
    [
        (10_000, 10_000, False),
        (2_500, 10_000, False),
        (2_499, 10_000, True),
        (None, 10_000, True),
        (None, 2_499, False),
        (None, None, False),
        (0, None, False),
    ],
)
def test_a_replica_is_replaced_only_by_one_that_has_caught_up_while_it_has_not(
    holder_ms: int | None, claim_ms: int | None, replaces: bool
) -> None:
    assert may_replace(claim(holder_ms), claim(claim_ms), 10_000, 7_500) == replaces


def test_the_next_holder_is_the_one_that_caught_up_last() -> None:
    assert next_holder({}) is None
    assert next_holder({4: claim(None), 5: claim(None)}) == 4
    assert next_holder({4: claim(None), 5: claim(7), 6: claim(9), 7: claim(9)}) == 6


def place(host: str, report: int | None = None) -> ConnectionPlace:
    return ConnectionPlace(host=host, report=report)


@pytest.mark.parametrize(
    ("places", "ended"),
    [
        ({1: place("a", 900), 2: place("a"), 3: place("a")}, 2),
        ({1: place("b"), 2: place("a"), 3: place("a"), 4: place("a", 900)}, 2),
        ({1: place("a", 900), 2: place("a", 900), 3: place("a", 900)}, 3),
        ({1: place("b", 900), 2: place("a", 0), 3: place("a", 900)}, 2),
        ({1: place("b", 900), 2: place("a", 900), 3: place("a", 900), 4: place("c", 900)}, 3),
    ],
)
def test_who_has_not_reported_makes_room_and_then_whose_log_is_the_shortest(
    places: dict[int, ConnectionPlace], ended: int
) -> None:
    assert most_dispensable(places) == ended
