from typing import Any

import msgspec
import pytest

from demos.failover import facts
from demos.failover.facts import FailoverFacts
from demos.failover.flight_table import TableCounts
from demos.failover.timeline import MasterFault
from roquet.cli.demo.facts import failed

FAULTS = (
    MasterFault(name="killed", at_ms=0, mended_ms=9, before="a", after="b", pause_ms=250),
    MasterFault(name="frozen", at_ms=10, mended_ms=19, before="b", after="c", pause_ms=3_400),
)

GOOD = FailoverFacts(
    arrived=4_000,
    sent=4_000,
    failures=7,
    stored=4_002,
    table=TableCounts(messages=4_002, rows=4_000, conflicts=0, disordered=0, found=4_000),
    faults=FAULTS,
)


def changed(**fields: Any) -> FailoverFacts:
    return msgspec.structs.replace(GOOD, **fields)


def with_table(**fields: int) -> FailoverFacts:
    return changed(table=msgspec.structs.replace(GOOD.table, **fields))


def test_a_failover_without_a_loss_says_how_long_senders_waited() -> None:
    assert failed(facts.checks(GOOD)) == []
    assert facts.verdict(GOOD) == (
        "4,000 sent = 4,000 stored = 4,000 rows: nothing lost, every aircraft in order; "
        "senders waited: killed 0.2 s, frozen 3.4 s"
    )


def test_flights_that_were_sent_again_are_no_failure() -> None:
    assert (GOOD.repeated, GOOD.failures) == (2, 7)


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        (changed(arrived=4_001), "sent: acknowledged by a broker: 4,000 instead of 4,001"),
        (with_table(found=3_999), "acknowledged and at its offset: 3,999 instead of 4,000"),
        (changed(stored=4_001), "stored, repeats left out: 3,999 instead of 4,000"),
        (with_table(rows=3_999), "rows: different flights in the table: 3,999 instead of 4,000"),
        (with_table(messages=4_001), "messages read of those stored: 4,001 instead of 4,002"),
        (with_table(conflicts=1), "messages seen that are gone: 1 instead of 0"),
        (with_table(disordered=1), "aircraft whose order was not kept: 1 instead of 0"),
        (
            changed(faults=[msgspec.structs.replace(FAULTS[0], after="a")]),
            "faults that another master got over: 0 instead of 1",
        ),
    ],
)
def test_whatever_does_not_add_up_is_named(counted: FailoverFacts, words: str) -> None:
    assert words in failed(facts.checks(counted))
    assert facts.verdict(counted).startswith("FAILED: ")
    assert words in facts.verdict(counted)
