import msgspec
import pytest

from roquet.cli.demo import facts
from roquet.cli.demo.facts import DemoFacts, TableFacts

GOOD = DemoFacts(
    flights=4,
    sent=4,
    stored=4,
    handled=4,
    twice=1,
    table=TableFacts(
        rows=4, distinct=4, gaps=0, disordered=0, carriers={"UA": {5: 3}, "AA": {6: 1}}
    ),
)


def with_table(**changes: int) -> DemoFacts:
    return msgspec.structs.replace(GOOD, table=msgspec.structs.replace(GOOD.table, **changes))


def test_facts_that_add_up_are_a_success() -> None:
    assert facts.failed(facts.checks(GOOD)) == []
    assert facts.verdict(GOOD).startswith("4 sent = 4 stored = 4 rows: nothing lost")


def test_a_message_handled_twice_is_reported_and_is_no_failure() -> None:
    assert "handled 1 twice" in facts.verdict(GOOD)


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        (msgspec.structs.replace(GOOD, sent=3), "sent: acknowledged by a broker: 3 instead of 4"),
        (msgspec.structs.replace(GOOD, stored=5), "stored in the brokers' queues: 5 instead of 4"),
        (msgspec.structs.replace(GOOD, handled=3), "handled by the group, at least once: 3"),
        (with_table(rows=3, distinct=3), "rows in the table: 3 instead of 4"),
        (with_table(rows=5), "duplicates in the table: 1 instead of 0"),
        (with_table(distinct=3), "different flights in the table: 3 instead of 4"),
        (with_table(gaps=2), "gaps in the queues' offsets: 2 instead of 0"),
        (with_table(disordered=1), "aircraft whose order was not kept: 1 instead of 0"),
    ],
)
def test_whatever_does_not_add_up_is_named(counted: DemoFacts, words: str) -> None:
    assert any(words in line for line in facts.failed(facts.checks(counted)))
    assert facts.verdict(counted).startswith("FAILED: ")
    assert words in facts.verdict(counted)


def test_one_row_lost_and_one_doubled_do_not_cancel_out() -> None:
    assert facts.failed(facts.checks(with_table(rows=4, distinct=3)))
