"""Facts of a failover: counts at each stage, and the checks that they are equal."""

from collections.abc import Sequence

import msgspec

from demos.failover.flight_table import TableCounts
from demos.failover.timeline import MasterFault
from roquet.cli.demo.facts import DemoCheck, failed


class FailoverFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of flights at each stage, and the faults in between."""

    arrived: int
    """Flights that came to the producer."""
    sent: int
    """Flights that a broker acknowledged."""
    failures: int
    """Tries without an acknowledgement; each was repeated."""
    stored: int
    """Messages in the queues of the broker that leads."""
    table: TableCounts
    faults: Sequence[MasterFault]

    @property
    def repeated(self) -> int:
        """Messages that are stored once more: an answer was lost, and the flight sent again."""
        return self.table.messages - self.table.rows

    @property
    def takeovers(self) -> int:
        """Faults after which another broker led."""
        return sum(fault.before != fault.after for fault in self.faults)


def checks(facts: FailoverFacts) -> list[DemoCheck]:
    """The checks of a failover that lost nothing."""
    table = facts.table
    return [
        DemoCheck("sent: acknowledged by a broker", facts.arrived, facts.sent),
        DemoCheck("acknowledged and at its offset", facts.sent, table.found),
        DemoCheck("stored, repeats left out", facts.sent, facts.stored - facts.repeated),
        DemoCheck("rows: different flights in the table", facts.sent, table.rows),
        DemoCheck("messages read of those stored", facts.stored, table.messages),
        DemoCheck("messages seen that are gone", 0, table.conflicts),
        DemoCheck("aircraft whose order was not kept", 0, table.disordered),
        DemoCheck("faults that another master got over", len(facts.faults), facts.takeovers),
    ]


def pauses_text(faults: Sequence[MasterFault]) -> str:
    """Pauses in seconds, by fault."""
    return ", ".join(f"{fault.name} {fault.pause_ms / 1000:.1f} s" for fault in faults)


def verdict(facts: FailoverFacts) -> str:
    """The result in one sentence."""
    if wrong := failed(checks(facts)):
        return "FAILED: " + "; ".join(wrong)
    return (
        f"{facts.sent:,} sent = {facts.stored - facts.repeated:,} stored = {facts.table.rows:,} "
        f"rows: nothing lost, every aircraft in order; senders waited: {pauses_text(facts.faults)}"
    )
