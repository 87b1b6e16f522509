"""Lag page: forecasts of all groups as HTML, and the lag of the worst ones over time."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from roquet.lake.lag.lag_summary import GroupLag, LagReport
from roquet.lake.lag.trends import LagState
from roquet.pictures.page import COLOURS, Cell, Section, page, table
from roquet.pictures.plots import PlotEvent, PlotSeries, line_plot

MINUTE_MS: Final = 60_000

NAME_MAX: Final = 18
"""Characters of a group's or topic's name beside a curve; the table has the whole name."""

_GROUPS_TEXT: Final = (
    "Rates are medians over all pairs of samples, in messages a second. Caught up: when nothing "
    "will wait, if the rates stay as they are. Cut off: when retention may begin to delete "
    "messages that the group has not handled; brokers delete whole files, so it may be later."
)
_PICTURE_TEXT: Final = (
    "Messages that wait, by minutes since the first sample, at {first} UTC: the topics in which "
    "groups are furthest behind."
)
_FLAT_TEXT: Final = " Not drawn, since their curves would lie on the axis: {count}."

VISIBLE_FRACTION: Final = 0.005
"""A curve below this part of the highest one would lie on the axis, and is not drawn."""


def html(report: LagReport, rows: pa.Table) -> str:
    """The page as HTML; `rows` are all samples of the table."""
    late = [each for each in report.standings if is_late(each)]
    sections = [
        Section(title="Samples", content=_facts_table(report, rows)),
        Section(title="Groups", text=_GROUPS_TEXT, content=_groups_table(report)),
    ]
    sections += _pictures(report, rows)
    return page("Lag of all groups", Cell(verdict(report), not late), sections)


def verdict(report: LagReport) -> str:
    """The state of all groups in one sentence."""
    late = [each for each in report.standings if is_late(each)]
    if not report.standings:
        return "there is no group with progress"
    if not late:
        return f"none of {len(report.standings)} groups is falling behind"
    return "; ".join(sentence(each, report.at_ms) for each in late)


def is_late(group: GroupLag) -> bool:
    """Whether a group will not catch up: it stands, falls behind, or is or will be cut off."""
    outlook = group.outlook
    is_bad = outlook.state >= LagState.FALLING_BEHIND or outlook.cut_off_s is not None
    return is_bad and outlook.lag + outlook.lost > 0


def sentence(group: GroupLag, at_ms: int) -> str:
    """One sentence about a group that will not catch up; `at_ms` is the time of the forecast."""
    outlook = group.outlook
    text = f"{group.group} will not catch up with {group.topic}: {outlook.state.words}"
    text += f", {outlook.lag:,} behind"
    if outlook.lost:
        text += f", {outlook.lost:,} were deleted before it read them"
    if outlook.cut_off_s is not None:
        text += f", cut off by retention from {time_text(at_ms, outlook.cut_off_s)} on"
    return text


def time_text(at_ms: int, in_s: float | None, never: str = "never") -> str:
    """The time `in_s` seconds after `at_ms` as text, in UTC; `never` for None or a far time."""
    if in_s is None:
        return never
    if not in_s:
        return "now"
    try:
        time = datetime.fromtimestamp(at_ms / 1000 + in_s, UTC)
    except (OverflowError, ValueError, OSError):
        return never
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _groups_table(report: LagReport) -> str:
    head = ["group", "topic", "state", "lag", "come/s", "handled/s", "caught up", "cut off", "lost",
            "worst queue"]  # fmt: skip
    rows = [
        [
            each.group,
            each.topic,
            Cell(each.outlook.state.words, _is_good(each), is_whole=True),
            each.outlook.lag,
            f"{each.outlook.come:,.1f}",
            f"{each.outlook.handled:,.1f}",
            Cell(time_text(report.at_ms, each.outlook.caught_up_s), is_whole=True),
            Cell(time_text(report.at_ms, each.outlook.cut_off_s, "-"), is_whole=True),
            each.outlook.lost,
            each.worst,
        ]
        for each in report.standings
    ]
    return table(head, rows)


def _facts_table(report: LagReport, rows: pa.Table) -> str:
    """The cluster, and the times of the samples."""
    brokers = sorted(pc.unique(rows["broker"]).to_pylist())
    facts: list[list[Cell | object]] = [
        ["name servers", report.namesrv],
        ["brokers", ", ".join(brokers)],
    ]
    if rows.num_rows:
        first_ms = pc.min(rows["at"]).cast(pa.int64()).as_py()
        facts.append(["first sample", Cell(_second_text(first_ms), is_whole=True)])
    facts.append(["last sample", Cell(_second_text(report.at_ms), is_whole=True)])
    return table(["what", ""], [*facts, ["samples of this run", report.samples]])


def _second_text(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _short(name: str) -> str:
    """A name shortened in the middle to fit beside the picture: both ends distinguish names."""
    half = NAME_MAX // 2
    return name if len(name) <= NAME_MAX else f"{name[:half]}\N{HORIZONTAL ELLIPSIS}{name[-half:]}"


def _is_good(group: GroupLag) -> bool | None:
    if is_late(group):
        return False
    return True if group.outlook.state is LagState.CAUGHT_UP else None


def _pictures(report: LagReport, rows: pa.Table) -> Iterator[Section]:
    worst = sorted(report.standings, key=lambda group: -group.outlook.lag)[:COLOURS]
    if not rows.num_rows or not worst:
        return
    first_ms = pc.min(rows["at"]).cast(pa.int64()).as_py()
    curves = {group: _series(rows, group, first_ms) for group in worst}
    visible = max(max(curve.y, default=0) for curve in curves.values()) * VISIBLE_FRACTION
    drawn = {group: curve for group, curve in curves.items() if max(curve.y, default=0) > visible}
    if not drawn:
        return
    series = [*drawn.values()]
    picture = line_plot(
        series,
        x="minutes",
        y="messages",
        moments=_cut_off_moments(report, [*drawn], first_ms, series),
    )
    flat = len(report.standings) - len(drawn)
    text = _PICTURE_TEXT.format(first=_second_text(first_ms).removesuffix(" UTC"))
    if len(drawn) == 1:
        text += "".join(f" The curve is {group.group}: {group.topic}." for group in drawn)
    text += _FLAT_TEXT.format(count=flat) if flat else ""
    yield Section(title="Lag over time", text=text, content=picture)


def _series(rows: pa.Table, group: GroupLag, first_ms: int) -> PlotSeries:
    own = rows.filter(
        pc.and_(pc.equal(rows["group"], group.group), pc.equal(rows["topic"], group.topic))
    )
    summed = own.group_by("at").aggregate([("lag", "sum")]).sort_by("at")
    at = summed["at"].cast(pa.int64()).to_pylist()
    return PlotSeries(
        name=f"{_short(group.group)}: {_short(group.topic)}",
        x=[(ms - first_ms) / MINUTE_MS for ms in at],
        y=summed["lag_sum"].to_pylist(),
    )


def _cut_off_moments(
    report: LagReport, worst: list[GroupLag], first_ms: int, series: list[PlotSeries]
) -> list[PlotEvent]:
    """When retention cuts off these groups, unless that is far outside of the picture."""
    last = max((curve.x[-1] for curve in series), default=0.0)
    now = (report.at_ms - first_ms) / MINUTE_MS
    events = [
        PlotEvent(now + group.outlook.cut_off_s / 60, f"{group.group} cut off")
        for group in worst
        if group.outlook.cut_off_s is not None
    ]
    return [event for event in events if event.x <= last * 1.5]
