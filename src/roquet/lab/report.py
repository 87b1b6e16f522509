"""Report: the summary as an HTML page, with the recommended strategies and their figures."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from roquet.lab.decisions import POP
from roquet.lab.measures import BURST_US, SECOND_US
from roquet.lab.scenario import LabScenario, ScenarioTimes
from roquet.lab.summary import (
    GOALS,
    Goal,
    GoalChoice,
    MeasureStatistics,
    ScenarioSummary,
    StudySummary,
)
from roquet.pictures.escaping import escape_text
from roquet.pictures.interval_plot import IntervalRow, interval_plot
from roquet.pictures.page import Cell, Section, page, table

NAMES_MAX: Final = 4
"""Most equivalent strategies that a cell names; of more it shows the number."""

_GLUE: Final = "\N{NO-BREAK SPACE}"

_PICTURED_GOALS: Final = (
    *GOALS,
    Goal(text="", measure="queues_max_mean", title="largest share", unit="times the mean"),
    Goal(text="", measure="idle_members", title="members without a queue", unit="members"),
    Goal(text="", measure="disordered", title="messages out of order, by key", unit="%", scale=100),
    Goal(text="", measure="slow_latency", title="latency of a slow member's messages",
         unit="times the others'"),
)  # fmt: skip

_CHOOSE: Final = (
    "For each scenario and each goal: the strategy with the best mean over all histories, of those "
    "that handle every message. Another strategy is as good when the 95 % interval of their "
    "difference, taken history by history, includes zero, or when the difference is under half a "
    "percent. The next is the best of the others, with its difference from the best one and the "
    "interval of that. Of equally good ones AVG is named, the default of every client. POP shares "
    "messages and not queues, so it has a column of its own; it does not keep the order of keys. "
    "CONFIG is left out, because it does not react to changes."
)
_CLAIMS: Final = "The claims of the documents about the strategies, checked in every history."
_PICTURES: Final = (
    "Dot: the mean, between the ends of its 95 % interval. Bar: the 5th to the 95th percentile of "
    "all histories. >: beyond the picture."
)
_TIMES: Final = "Durations in the simulation; our defaults, where no other source is named."


def html(summary: StudySummary) -> str:
    """The page as HTML; equal studies give equal bytes."""
    study = summary.study
    failed = [claim for claim in summary.claims if not claim.holds]
    count = len(study.scenarios)
    scenarios = "one scenario" if count == 1 else f"each of {count} scenarios"
    compared = len(study.strategies)
    strategies = "1 strategy" if compared == 1 else f"{compared:,} strategies"
    verdict = (
        f"{study.histories:,} histories of {scenarios} under "
        f"{strategies}, from seed {study.seed}: "
        f"{len(summary.claims) - len(failed)} of {len(summary.claims)} claims hold."
    )
    sections = [
        Section(title="Which strategy to choose when", text=_CHOOSE, content=_choices(summary)),
        Section(title="Claims", text=_CLAIMS, content=_claims(summary)),
    ]
    for part, scenario in zip(summary.parts, study.scenarios, strict=True):
        sections += _sections(part, scenario)
    sections.append(
        Section(title="Times", text=_TIMES, content=_times([s.times for s in study.scenarios]))
    )
    meanings = table(["measure", "what it is"], _MEANINGS)
    sections.append(Section(title="How to read the measures", content=meanings))
    return page("Roquet: the balance lab", Cell(verdict, not failed), sections)


def _choices(summary: StudySummary) -> str:
    header = ["scenario", "you want", "choose", "its mean", "as good", "the next has", "POP has"]
    rows = []
    for part in summary.parts:
        name = part.name
        for goal in GOALS:
            choice = next((each for each in part.choices if each.measure == goal.measure), None)
            if choice is not None:
                rows.append(
                    [name, goal.text.replace(" ", _GLUE), *_advice_cells(part, goal, choice)]
                )
                name = ""
    return table(header, rows)


def _advice_cells(part: ScenarioSummary, goal: Goal, choice: GoalChoice) -> Sequence[Cell | object]:
    """Cells with the best strategy, its figure, the equally good ones, and the figure of POP."""
    chosen, *others = choice.best
    unit = "%" if goal.unit.startswith("%") else goal.unit.replace(" ", _GLUE)
    figure = f"{_with_margin(part.figures[chosen][goal.measure], goal.scale)}{_GLUE}{unit}"
    alike = ", ".join(others)
    if len(choice.best) == choice.of and others:
        return ["whichever", figure, "all of them", "-", _pop_figure(part, goal)]
    if len(others) > NAMES_MAX:
        alike = f"{len(others)} others"
    worse = next_text(choice, goal) or "-"
    return [Cell(chosen, True), figure, alike or "none", worse, _pop_figure(part, goal)]


def next_text(choice: GoalChoice, goal: Goal) -> str:
    """The best strategy that is not as good, and how much more it has; empty without any."""
    apart = choice.next
    if apart is None:
        return ""
    return f"{apart.strategy} +{_plus_or_minus(apart.mean * goal.scale, apart.margin * goal.scale)}"


def _pop_figure(part: ScenarioSummary, goal: Goal) -> str:
    figure = part.figures.get(POP, {}).get(goal.measure)
    return "-" if figure is None else _with_margin(figure, goal.scale)


def _claims(summary: StudySummary) -> str:
    rows = [
        [claim.text, claim.found, Cell("holds" if claim.holds else "does not hold", claim.holds)]
        for claim in summary.claims
    ]
    return table(["claim", "found", ""], rows)


def _sections(part: ScenarioSummary, scenario: LabScenario) -> Iterator[Section]:
    about = f"{scenario.about} " if scenario.about else ""
    yield Section(
        title=f"Scenario {part.name}",
        text=f"{about}{scenario.describe()}. {_PICTURES}",
        content=_pictures(part) + _numbers(part),
    )


def _pictures(part: ScenarioSummary) -> str:
    drawn = []
    for goal in _PICTURED_GOALS:
        every = part.figures.items()
        figures = {name: own[goal.measure] for name, own in every if goal.measure in own}
        if len(figures) < 2 or not any(figure.most for figure in figures.values()):
            continue
        title = f'<h3 style="margin:.6rem 0 0;font-size:1rem">{escape_text(goal.title)}</h3>'
        drawn.append(f"<div>{title}{_picture(part, goal, figures)}</div>")
    style = "display:grid;grid-template-columns:repeat(auto-fit,minmax(24rem,1fr));gap:0 2rem"
    return f'<div style="{style}">{"".join(drawn)}</div>'


def _picture(part: ScenarioSummary, goal: Goal, figures: Mapping[str, MeasureStatistics]) -> str:
    names = list(part.figures)
    sound = [n for n in figures if not part.figures[n]["stranded"].most] or list(figures)
    rows = [
        IntervalRow(
            name=name,
            low=figure.low * goal.scale,
            mean=figure.mean * goal.scale,
            high=figure.high * goal.scale,
            margin=figure.margin * goal.scale,
            note=_with_margin(figure, goal.scale),
            owner=names.index(name),
        )
        for name, figure in figures.items()
    ]
    # A strategy that leaves queues without an owner would dwarf all others in the picture.
    most = max(max(figures[n].high, figures[n].mean) for n in sound) * goal.scale
    return interval_plot(rows, x=goal.unit, most=most)


def _with_margin(figure: MeasureStatistics, scale: float) -> str:
    return _plus_or_minus(figure.mean * scale, figure.margin * scale)


def _plus_or_minus(mean: float, margin: float) -> str:
    digits = 2 if mean < 10 else 1 if mean < 100 else 0
    while digits < 3 and margin and round(margin, digits) == 0:
        digits += 1
    return f"{mean:,.{digits}f}{_GLUE}±{_GLUE}{margin:,.{digits}f}"


def _numbers(part: ScenarioSummary) -> str:
    """A table of all measures, named as the columns of the Parquet table."""
    names = list(dict.fromkeys(name for own in part.figures.values() for name in own))
    rows = [
        [
            name,
            *(_with_margin(own[name], 1) if name in own else "-" for own in part.figures.values()),
        ]
        for name in names
    ]
    whole = table(["column", *part.figures], rows)
    return (
        f"<details><summary>Every column of the table, scenario {escape_text(part.name)}</summary>"
        f'<div style="overflow-x:auto">{whole}</div></details>'
    )


_SOURCES: Final[Mapping[str, tuple[str, str]]] = {
    "silent_ms": ("until the broker drops a silent machine", "rules.liveness.SILENCE_MS_MAX"),
    "killed_ms": ("until the broker drops a killed process", "its connection ends with it"),
    "notice_ms": ("until members have learned of a change", "a round figure"),
    "loser_ms": (
        "an old owner waits for its handler",
        "client.rebalance.assigned_queues.HANDOVER_MS",
    ),
    "taker_ms": ("a new owner waits for a commit", "rules.balance.handover.HANDOVER_MS"),
    "lock_ms": ("a new owner waits in an ordered group", "broker.tables.locks.LIFETIME_MS"),
    "close_ms": ("a closing member waits for its handlers", "ConsumerConfig.close_timeout_ms"),
    "save_ms": ("between two commits", "ConsumerConfig.save_period_ms"),
    "invisible_ms": ("a popped message is invisible", "ConsumerConfig.invisible_ms"),
    "review_ms": (
        "between two reviews of LAG_WEIGHTED",
        "broker.services.broker_rebalance.REVIEW_MS",
    ),
}


def _times(of_scenarios: Sequence[ScenarioTimes]) -> str:
    rows = []
    for name, (text, source) in _SOURCES.items():
        values = sorted({getattr(times, name) for times in of_scenarios})
        own = values != [getattr(ScenarioTimes(), name)]
        rows.append([text, ", ".join(f"{v:,} ms" for v in values), "own" if own else source])
    return table(["what", "how long", "from"], rows)


_MEANINGS: Final = (
    (
        "load of the busiest member",
        "Messages per second that it handled while it was there, over the mean of all members. A "
        "slow member that handles fewer counts as uneven, too, although that is right where "
        "messages are shared.",
    ),
    ("queues that move", "Over all changes of a history."),
    (
        "pauses of all queues",
        "From an owner's death, or from the change, until the new owner may begin; added up over "
        "all queues.",
    ),
    (
        "messages begun twice",
        "Not committed by a member that died, or still being handled when their queue went to "
        "another member or their invisible time was over.",
    ),
    (
        "burst after a pause",
        f"The most messages begun in the {BURST_US // SECOND_US} seconds after a pause, or after "
        "popped messages came again, over the mean rate.",
    ),
    ("latency", "From the send until a message was handled."),
    (
        "members idle while messages wait",
        "Time in which members had nothing to do although messages waited elsewhere, because of a "
        "slow member, a heavy key or a pause.",
    ),
    ("out of order", "Messages begun before an earlier one of the same key had ended."),
)
