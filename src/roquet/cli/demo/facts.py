"""What was counted on the flights' way, what has to be equal, and what is."""

from collections.abc import Mapping

import msgspec


class TableFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What Spark counted in the table it had written."""

    rows: int
    distinct: int
    """Different flights among them."""
    gaps: int
    """Queue offsets below the highest that are missing."""
    disordered: int
    """Aircraft whose flights do not stand in one queue in the order of the file."""
    carriers: Mapping[str, Mapping[int, int]] = {}
    """Carrier → hour of departure → flights."""


class DemoFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was counted on the way."""

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
    """Something that must be so."""

    name: str
    wanted: int
    found: int

    @property
    def kept(self) -> bool:
        """Whether it is so."""
        return self.wanted == self.found


def checks(facts: DemoFacts) -> list[DemoCheck]:
    """What must be so for the demo to have succeeded."""
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


def failed(facts: DemoFacts) -> list[str]:
    """What is not as it must be, in words; empty when all is well."""
    return [
        f"{check.name}: {check.found:,} instead of {check.wanted:,}"
        for check in checks(facts)
        if not check.kept
    ]


def verdict(facts: DemoFacts) -> str:
    """The whole demo in one sentence."""
    if wrong := failed(facts):
        return "FAILED: " + "; ".join(wrong)
    in_table = facts.table
    return (
        f"{facts.sent:,} sent = {facts.stored:,} stored = {in_table.rows:,} rows: "
        f"nothing lost, nothing doubled in the table, every aircraft in order; "
        f"the group handled {facts.twice:,} twice"
    )
