"""Report: the failover demo's page, with the verdict, the counts, the pauses and three pictures."""

from collections.abc import Sequence
from typing import Final

from demos.failover.facts import FailoverFacts, checks, verdict
from demos.failover.timeline import (
    BrokerState,
    FailoverTimeline,
    MasterFault,
    confirmed_curve,
    state_spans,
)
from roquet.cli.demo import event_log
from roquet.cli.demo.facts import failed
from roquet.cli.demo.report import books, series
from roquet.pictures import plots
from roquet.pictures.page import Cell, Section, page, table
from roquet.pictures.plots import OwnershipSpan, PlotEvent, PlotSeries

STATES: Final = (BrokerState.LEADS, BrokerState.FOLLOWS, BrokerState.FENCED)
"""States in the order of their colours."""


def html(facts: FailoverFacts, seen: FailoverTimeline) -> str:
    """The report as one page."""
    moments = [PlotEvent(ms / 1000, name) for ms, name in seen.moments]
    return page(
        "Roquet: a master killed, frozen and parted",
        Cell(verdict(facts), not failed(checks(facts))),
        [
            Section(title="The books", text=_BOOKS, content=_books(facts)),
            Section(title="How long senders waited", text=_PAUSES, content=_pauses(facts.faults)),
            Section(title="Flights a second", text=_RATES, content=_rates(seen, moments)),
            Section(title="Who leads", text=_ROLES, content=_roles(seen, moments)),
            Section(title="Confirmed flights", text=_CONFIRMED, content=_confirmed(seen, moments)),
        ],
    )


_BOOKS = (
    "Three brokers hold one log. A flight is acknowledged once every broker in sync has it; a "
    "consumer writes what it reads to a table, by queue and offset."
)
_PAUSES = (
    "The longest time without an acknowledgement after each fault. A killed process is noticed by "
    "its connection, one that hangs or is cut off by its silence: its lease ends before another is "
    "elected."
)
_RATES = (
    "The areas are what each broker acknowledged, the line is what came to the producer. Flights "
    "that wait while nobody leads are sent once somebody does."
)
_ROLES = (
    "As each broker says itself, asked five times a second; a gap is a broker that does not "
    "answer. A master without a lease reaches its clients still, and refuses their messages."
)
_CONFIRMED = (
    "Messages that each broker shows to consumers: those that all brokers in sync have. A master "
    "that comes back goes on where the log of its successor does."
)


def _books(facts: FailoverFacts) -> str:
    counts = [
        ("stored a second time: the answer was lost", facts.repeated),
        ("tries that were refused or not answered", facts.failures),
    ]
    return books(checks(facts), counts)


def _pauses(faults: Sequence[MasterFault]) -> str:
    rows = [
        [
            fault.name,
            _seconds(fault.at_ms),
            Cell(fault.before, is_whole=True),
            Cell(fault.after, fault.after != fault.before, is_whole=True),
            Cell(f"{fault.pause_ms / 1000:.2f} s", is_whole=True),
            _seconds(fault.mended_ms - fault.at_ms),
        ]
        for fault in faults
    ]
    return table(["the master is", "at", "it was", "then led", "pause", "mended after"], rows)


def _seconds(ms: int) -> Cell:
    return Cell(f"{ms / 1000:.1f} s", is_whole=True)


def _rates(seen: FailoverTimeline, moments: Sequence[PlotEvent]) -> str:
    areas = []
    for broker in seen.brokers:
        times = (one.at_ms for one in seen.acknowledged if one.broker == broker)
        areas.append(series(broker, event_log.rate(times, seen.end_ms)))
    return plots.line_plot(
        [series("arriving", event_log.rate(seen.arrived_ms, seen.end_ms))],
        stacked=areas,
        x="seconds",
        y="flights a second",
        moments=moments,
    )


def _roles(seen: FailoverTimeline, moments: Sequence[PlotEvent]) -> str:
    spans = [
        OwnershipSpan(
            row=span.broker,
            start=span.start_ms / 1000,
            end=span.end_ms / 1000,
            owner=STATES.index(span.state),
        )
        for span in state_spans(seen.samples, seen.end_ms)
    ]
    names = [state.value for state in STATES]
    colour = len(seen.brokers)  # those before it are the brokers' own in the other pictures
    return plots.ownership_timeline(spans, names, x="seconds", moments=moments, first_colour=colour)


def _confirmed(seen: FailoverTimeline, moments: Sequence[PlotEvent]) -> str:
    curves = []
    for broker in seen.brokers:
        points = confirmed_curve(seen.samples, broker)
        curves.append(PlotSeries(name=broker, x=[x for x, _ in points], y=[y for _, y in points]))
    return plots.line_plot(curves, x="seconds", y="flights", moments=moments)
