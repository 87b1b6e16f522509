"""The page of the lag job: who will not catch up and by when, and every group's lag over time."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from roquet.pictures.page import COLOURS, Cell, Section, page, table
from roquet.pictures.plots import PlotEvent, PlotSeries, line_plot
from roquet.spark.jobs.lag.lag_summary import GroupLag, LagReport
from roquet.spark.jobs.lag.trends import LagState

MINUTE_MS: Final = 60_000

NAME_MAX: Final = 18
"""Characters of a group or a topic beside the curves: the table above has all of them."""

_GROUPS_TEXT: Final = (
    "Rates are medians over all pairs of samples, in messages a second. Caught up: when nothing "
    "waits, if all goes on like this. Cut off: from when on retention may delete what the group "
    "has not handled; brokers delete whole files, so it may be later."
)
_PICTURE_TEXT: Final = (
    "Messages that wait, by minutes since the first sample, at {first} UTC: the topics in which "
    "groups are furthest behind."
)
_FLAT_TEXT: Final = " Not drawn, since their curves would lie on the axis: {count}."

VISIBLE_FRACTION: Final = 0.005
"""Of the highest curve: one that is always below that lies on the axis, and would only be named."""


def html(done: LagReport, rows: pa.Table) -> str:
    """The whole page, from all samples that the table has."""
    late = [one for one in done.standings if is_late(one)]
    sections = [
        Section(title="What was watched", content=_facts_table(done, rows)),
        Section(title="Groups", text=_GROUPS_TEXT, content=_groups_table(done)),
    ]
    sections += _pictures(done, rows)
    return page("Lag of all groups", Cell(verdict(done), not late), sections)


def verdict(done: LagReport) -> str:
    """All groups in a sentence."""
    late = [one for one in done.standings if is_late(one)]
    if not done.standings:
        return "there is no group with progress"
    if not late:
        return f"none of {len(done.standings)} groups is falling behind"
    return "; ".join(sentence(one, done.at_ms) for one in late)


def is_late(one: GroupLag) -> bool:
    """Whether a group will not catch up, as it goes now: it stands, falls behind, or has lost."""
    outlook = one.outlook
    is_bad = outlook.state >= LagState.FALLING_BEHIND or outlook.cut_off_s is not None
    return is_bad and outlook.lag + outlook.lost > 0


def sentence(one: GroupLag, at_ms: int) -> str:
    """A group that will not catch up, in a sentence."""
    outlook = one.outlook
    text = f"{one.group} will not catch up with {one.topic}: {outlook.state.words}"
    text += f", {outlook.lag:,} behind"
    if outlook.lost:
        text += f", {outlook.lost:,} were deleted before it came"
    if outlook.cut_off_s is not None:
        text += f", cut off by retention from {time_text(at_ms, outlook.cut_off_s)} on"
    return text


def time_text(at_ms: int, in_s: float | None, never: str = "never") -> str:
    """A time in the future for eyes, in UTC."""
    if in_s is None:
        return never
    if not in_s:
        return "now"
    try:
        found = datetime.fromtimestamp(at_ms / 1000 + in_s, UTC)
    except (OverflowError, ValueError, OSError):
        return never
    return f"{found:%Y-%m-%d %H:%M} UTC"


def _groups_table(done: LagReport) -> str:
    head = ["group", "topic", "state", "lag", "come/s", "handled/s", "caught up", "cut off", "lost",
            "worst queue"]  # fmt: skip
    rows = [
        [
            one.group,
            one.topic,
            Cell(one.outlook.state.words, _is_good(one), is_whole=True),
            one.outlook.lag,
            f"{one.outlook.come:,.1f}",
            f"{one.outlook.handled:,.1f}",
            Cell(time_text(done.at_ms, one.outlook.caught_up_s), is_whole=True),
            Cell(time_text(done.at_ms, one.outlook.cut_off_s, "-"), is_whole=True),
            one.outlook.lost,
            one.worst,
        ]
        for one in done.standings
    ]
    return table(head, rows)


def _facts_table(done: LagReport, rows: pa.Table) -> str:
    """Which cluster, when, and how often."""
    brokers = sorted(pc.unique(rows["broker"]).to_pylist())
    facts: list[list[Cell | object]] = [
        ["name servers", done.namesrv],
        ["brokers", ", ".join(brokers)],
    ]
    if rows.num_rows:
        first_ms = pc.min(rows["at"]).cast(pa.int64()).as_py()
        facts.append(["first sample", Cell(_second_text(first_ms), is_whole=True)])
    facts.append(["last sample", Cell(_second_text(done.at_ms), is_whole=True)])
    return table(["what", ""], [*facts, ["samples of this run", done.samples]])


def _second_text(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _short(name: str) -> str:
    """A name that fits beside the picture; its beginning and its end tell it from others."""
    half = NAME_MAX // 2
    return name if len(name) <= NAME_MAX else f"{name[:half]}\N{HORIZONTAL ELLIPSIS}{name[-half:]}"


def _is_good(one: GroupLag) -> bool | None:
    if is_late(one):
        return False
    return True if one.outlook.state is LagState.CAUGHT_UP else None


def _pictures(done: LagReport, rows: pa.Table) -> Iterator[Section]:
    worst = sorted(done.standings, key=lambda one: -one.outlook.lag)[:COLOURS]
    if not rows.num_rows or not worst:
        return
    first_ms = pc.min(rows["at"]).cast(pa.int64()).as_py()
    every = {one: _series(rows, one, first_ms) for one in worst}
    top = max(max(one.y, default=0) for one in every.values())
    drawn = {one: s for one, s in every.items() if max(s.y, default=0) > top * VISIBLE_FRACTION}
    if not drawn:
        return
    series = [*drawn.values()]
    picture = line_plot(
        series,
        x="minutes",
        y="messages",
        moments=_cut_off_moments(done, [*drawn], first_ms, series),
    )
    flat = len(done.standings) - len(drawn)
    text = _PICTURE_TEXT.format(first=_second_text(first_ms).removesuffix(" UTC"))
    if len(drawn) == 1:
        text += "".join(f" The curve is {one.group}: {one.topic}." for one in drawn)
    text += _FLAT_TEXT.format(count=flat) if flat else ""
    yield Section(title="Lag over time", text=text, content=picture)


def _series(rows: pa.Table, one: GroupLag, first_ms: int) -> PlotSeries:
    own = rows.filter(
        pc.and_(pc.equal(rows["group"], one.group), pc.equal(rows["topic"], one.topic))
    )
    summed = own.group_by("at").aggregate([("lag", "sum")]).sort_by("at")
    at = summed["at"].cast(pa.int64()).to_pylist()
    return PlotSeries(
        name=f"{_short(one.group)}: {_short(one.topic)}",
        x=[(ms - first_ms) / MINUTE_MS for ms in at],
        y=summed["lag_sum"].to_pylist(),
    )


def _cut_off_moments(
    done: LagReport, worst: list[GroupLag], first_ms: int, series: list[PlotSeries]
) -> list[PlotEvent]:
    """When retention comes, where that is not far outside of the picture."""
    reach = max((one.x[-1] for one in series), default=0.0)
    found = [
        PlotEvent(
            (done.at_ms - first_ms) / MINUTE_MS + one.outlook.cut_off_s / 60, f"{one.group} cut off"
        )
        for one in worst
        if one.outlook.cut_off_s is not None
    ]
    return [one for one in found if one.x <= reach * 1.5]
