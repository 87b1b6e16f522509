"""Report: the demo's page, with the verdict, the counts and four pictures."""

from collections.abc import Mapping, Sequence

import msgspec

from roquet.cli.demo import event_log
from roquet.cli.demo.event_log import HandledFlight, QueuesOwned, TimeCurve
from roquet.cli.demo.facts import DemoCheck, DemoFacts, TableFacts, checks, failed, verdict
from roquet.pictures import plots
from roquet.pictures.page import Cell, Section, page, table
from roquet.pictures.plots import OwnershipSpan, PlotEvent, PlotSeries


class DemoTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """Events of the demo; times in ms since its start."""

    sent_ms: Sequence[int]
    books: Mapping[str, Sequence[HandledFlight]]
    owned: Mapping[str, Sequence[QueuesOwned]]
    ends_ms: Mapping[str, int]
    moments: Sequence[tuple[int, str]] = ()
    end_ms: int


def html(facts: DemoFacts, journey: DemoTimeline) -> str:
    """The report as one page."""
    moments = [PlotEvent(ms / 1000, name) for ms, name in journey.moments]
    twice = ("handled a second time (at least once allows it)", facts.twice)
    return page(
        "Roquet: the flights' whole way",
        Cell(verdict(facts), not failed(checks(facts))),
        [
            Section(title="The books", text=_BOOKS, content=books(checks(facts), [twice])),
            Section(title="Messages a second", text=_RATE, content=_rates(journey, moments)),
            Section(title="Lag", text=_LAG, content=_lag(journey, moments)),
            Section(title="Who owned which queue", text=_OWNED, content=_owned(journey, moments)),
            Section(title="Flights by carrier and hour", text=_TABLE, content=_hours(facts.table)),
        ],
    )


_BOOKS = (
    "Each flight is counted by its line in the file: when a broker acknowledged it, in the queues, "
    "when a consumer had handled it, and in the Parquet table that Spark wrote."
)
_RATE = "The line is what the producer sent; the areas are what each consumer of the group handled."
_LAG = (
    "The most flights in each tenth of a second that a broker had stored and nobody had handled. A "
    "member that is killed leaves its queues to nobody until the others have divided them anew."
)
_OWNED = (
    "The group began with two members, a third joined, and one was killed without a word. Queues "
    "that changed hands may have had messages in flight: those are handled twice."
)
_TABLE = (
    "Read from the table: scheduled hour of departure against carrier, the darker the more flights."
)


def books(checked: Sequence[DemoCheck], counts: Sequence[tuple[str, int]]) -> str:
    """A table of checks, and of counts that may have any value."""
    rows = [
        [one.name, one.expected, Cell(one.actual, one.holds), "" if one.holds else "wrong"]
        for one in checked
    ]
    rows += [[name, "any", count, ""] for name, count in counts]
    return table(["", "wanted", "found", ""], rows)


def _rates(journey: DemoTimeline, moments: Sequence[PlotEvent]) -> str:
    sent = event_log.rate(journey.sent_ms, journey.end_ms)
    areas = [
        series(name, event_log.rate((note.at_ms for note in notes), journey.end_ms))
        for name, notes in journey.books.items()
    ]
    return plots.line_plot(
        [series("sent", sent)], stacked=areas, x="seconds", y="messages a second", moments=moments
    )


def _lag(journey: DemoTimeline, moments: Sequence[PlotEvent]) -> str:
    curve = event_log.lag(journey.sent_ms, journey.books.values(), journey.end_ms)
    return plots.line_plot([series("lag", curve)], x="seconds", y="messages", moments=moments)


def _owned(journey: DemoTimeline, moments: Sequence[PlotEvent]) -> str:
    members = list(journey.books)
    spans = [
        OwnershipSpan(
            row=one.queue,
            start=one.start_ms / 1000,
            end=one.end_ms / 1000,
            owner=members.index(one.member),
        )
        for one in event_log.ownership_spans(journey.owned, journey.ends_ms)
    ]
    return plots.ownership_timeline(spans, members, x="seconds", moments=moments)


def _hours(in_table: TableFacts) -> str:
    cells = {
        (carrier, hour): float(count)
        for carrier, hours in in_table.carriers.items()
        for hour, count in hours.items()
    }
    biggest = sorted(in_table.carriers, key=lambda name: -sum(in_table.carriers[name].values()))
    return plots.heatmap(cells, x="hour of departure", y="", rows=biggest)


def series(name: str, curve: TimeCurve) -> PlotSeries:
    """A curve with its name, for a plot."""
    return PlotSeries(name=name, x=curve.at, y=curve.values)
