"""Facts: counts of flights at each stage, and the checks that they are equal."""

from collections.abc import Iterable, Mapping

import msgspec


class TableFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the table that Spark wrote."""

    rows: int
    distinct: int
    """Different flights among them."""
    gaps: int
    """Queue offsets below the highest that are missing."""
    disordered: int
    """Aircraft whose flights are not in one queue in the order of the file."""
    carriers: Mapping[str, Mapping[int, int]] = {}
    """Carrier → hour of departure → flights."""


class DemoFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of flights at each stage."""

    flights: int
    """In the file."""
    sent: int
    """Acknowledged by a broker."""
    stored: int
    """In the brokers' queues."""
    handled: int
    """By at least one consumer."""
    twice: int
    """Handled once more than needed."""
    table: TableFacts


class DemoCheck(msgspec.Struct, frozen=True):
    """A count, and the value that it must have."""

    name: str
    expected: int
    actual: int

    @property
    def holds(self) -> bool:
        """Whether both are equal."""
        return self.expected == self.actual


def checks(facts: DemoFacts) -> list[DemoCheck]:
    """The checks of a demo that succeeded."""
    flights, in_table = facts.flights, facts.table
    return [
        DemoCheck("sent: acknowledged by a broker", flights, facts.sent),
        DemoCheck("stored in the brokers' queues", flights, facts.stored),
        DemoCheck("handled by the group, at least once", flights, facts.handled),
        DemoCheck("rows in the table", flights, in_table.rows),
        DemoCheck("different flights in the table", flights, in_table.distinct),
        DemoCheck("duplicates in the table", 0, in_table.rows - in_table.distinct),
        DemoCheck("gaps in the queues' offsets", 0, in_table.gaps),
        DemoCheck("aircraft whose order was not kept", 0, in_table.disordered),
    ]


def failed(checks: Iterable[DemoCheck]) -> list[str]:
    """Failed checks in words; empty when all is well."""
    return [
        f"{check.name}: {check.actual:,} instead of {check.expected:,}"
        for check in checks
        if not check.holds
    ]


def verdict(facts: DemoFacts) -> str:
    """The result in one sentence."""
    if wrong := failed(checks(facts)):
        return "FAILED: " + "; ".join(wrong)
    in_table = facts.table
    return (
        f"{facts.sent:,} sent = {facts.stored:,} stored = {in_table.rows:,} rows: "
        f"nothing lost, nothing doubled in the table, every aircraft in order; "
        f"the group handled {facts.twice:,} twice"
    )
