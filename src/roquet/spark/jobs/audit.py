"""audit: a producer's count, a topic and its table, held against each other.

    report = main(Params(topic="orders", target="lake/orders"))
    report.findings     # missing, lost, doubled, unknown: each a queue and its offsets

Each side is asked for what it knows without reading bodies: the table for its offsets, the topic
for the ends of its queues and for the first offset of each hour. Nothing is written, and an archive
may go on meanwhile.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from roquet.model.errors import ConfigError
from roquet.spark.cluster import Cluster
from roquet.spark.jobs import findings, footprint, hours
from roquet.spark.jobs.coverage import Runs, Span, doubles, gaps
from roquet.spark.jobs.errand import Answer
from roquet.spark.jobs.findings import Finding, Hour, Queue
from roquet.spark.jobs.footprint import Counting, Found
from roquet.spark.jobs.running import JobFailed, answers, spark_for
from roquet.spark.options import SourceOptions, parse
from roquet.spark.plan import Offsets
from roquet.spark.tables.looking import Held, look

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALLOWED: Final = frozenset({"namesrv", "timeout"})

GROUP_BYTES: Final = 256 * 1024 * 1024
"""Of files that one task looks at: most of it are bodies, which are passed over."""

THREADS_MAX: Final = 4
"""Files that this process looks at together; each has a few columns in memory."""

ROWS: Final = "rows"
"""Stands for a file of counts where the rows' own keys are to be counted."""


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """What a user wants to have compared."""

    topic: str
    target: str
    producer: str = ""
    """A file of counts by hour, or `rows`: look at the keys that our sink gives its rows."""
    options: Mapping[str, str] = {}
    name: str = ""
    catalog: Mapping[str, str] = {}
    master: str | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an audit has come."""

    done: int
    total: int
    what: str


class RowGap(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one writer (query, batch and partition) that are missing, or there twice."""

    what: str
    writer: str
    start: int
    end: int
    times: int = 1

    @property
    def rows(self) -> str:
        """`5`, or `5..9`."""
        return str(Span(self.start, self.end))


class Surplus(msgspec.Struct, frozen=True, kw_only=True):
    """Hours in which the table and the producer's count differ."""

    first: int
    last: int
    more: int
    """Messages that the table has more; fewer when it is below zero."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit has found."""

    topic: str
    table: str
    kind: str
    number: int
    rows: int
    in_topic: int
    waiting: int
    """In the topic, and not archived yet: no fault."""
    begin_known: bool
    """Whether the table knows where it began; if not, its first row counts as that."""
    findings: tuple[Finding, ...]
    hours: tuple[Hour, ...]
    producer: tuple[Surplus, ...] = ()
    row_gaps: tuple[RowGap, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing is amiss."""
        return not (self.findings or self.producer or self.row_gaps)

    def count(self, what: str) -> int:
        """Messages with this fault."""
        return sum(one.messages for one in self.findings if one.what == what)


Tell = Callable[[Progress], object]

transform = footprint.transform
"""What is in rows of a table: pure; each task does it to its files."""


def main(params: Params) -> Report:
    """Audit with the Spark that is there, or one on this machine."""
    return run(params, lambda: spark_for("roquet audit", params.master))


def run(
    params: Params,
    spark: "Callable[[], SparkSession] | None" = None,
    tell: Tell = lambda _: None,
) -> Report:
    """Compare; without a Spark this process looks at the files by itself."""
    settings = settings_of(params)
    counted = hours.producers(Path(params.producer), params.topic) if _is_file(params) else None
    held = look(params.target, params.topic, name=params.name, catalog=params.catalog)
    cluster = Cluster(settings)
    cluster.latest()  # a topic that there is not is said before all files are read
    found = _looked_at(params, held, spark, tell)
    queues = _queues(cluster, held, found, tell)
    return compared(params, held, found, queues, counted)


def settings_of(params: Params) -> SourceOptions:
    """Where the topic is."""
    if not params.topic.strip() or "," in params.topic:
        raise ConfigError(f"an audit is of one topic, not of {params.topic!r}")
    for name in params.options:
        if name.lower() not in ALLOWED:
            raise ConfigError(f"option {name!r} is not for audits: they are of all messages")
    return parse({**params.options, "topic": params.topic}, os.environ)


def compared(
    params: Params,
    held: Held,
    found: Found,
    queues: Sequence[Queue],
    counted: Mapping[int, int] | None,
) -> Report:
    """The report of what all sides have said. Pure."""
    born = footprint.added([one.born or one.hours for one in found.queues])
    differing = findings.against(counted, born) if counted is not None else []
    return Report(
        topic=params.topic,
        table=params.target,
        kind=held.kind,
        number=held.number,
        rows=found.rows,
        in_topic=sum((one.next or 0) - (one.first or 0) for one in queues),
        waiting=sum(map(findings.waiting, queues)),
        begin_known=held.begin is not None,
        findings=tuple(one for queue in queues for one in findings.of_queue(queue)),
        hours=tuple(findings.by_hour(found.queues, queues, counted)),
        producer=tuple(Surplus(first=a, last=b, more=more) for a, b, more in differing),
        row_gaps=tuple(row_gaps(found)),
    )


def row_gaps(found: Found) -> list[RowGap]:
    """What is wrong with the keys of rows: numbers that are missing, or there more than once."""
    gone = [
        RowGap(what="missing", writer=one.name, start=span.start, end=span.end)
        for one in found.writers
        for span in gaps(one.runs, 0, max(one.runs.ends, default=0))
    ]
    twice = [
        RowGap(what="doubled", writer=one.name, start=span.start, end=span.end, times=times)
        for one in found.writers
        for span, times in doubles(one.runs)
    ]
    return sorted([*gone, *twice], key=lambda one: (one.writer, one.start))


def grouped(paths: Sequence[str], size: Callable[[str], int]) -> list[list[str]]:
    """Files for one task each: a few large ones, or many small ones."""
    groups: list[list[str]] = []
    room = 0
    for path in paths:
        if room <= 0:
            groups.append([])
            room = GROUP_BYTES
        groups[-1].append(path)
        room -= size(path)
    return groups


def _is_file(params: Params) -> bool:
    return bool(params.producer) and params.producer != ROWS


def _looked_at(
    params: Params, held: Held, spark: "Callable[[], SparkSession] | None", tell: Tell
) -> Found:
    """What is in all files."""
    try:
        groups = grouped(held.paths, lambda path: Path(path).stat().st_size)
    except FileNotFoundError as error:
        raise JobFailed(
            f"{error.filename} is gone: files were merged meanwhile; start again"
        ) from None
    errand = Counting(groups=groups, topic=params.topic, keys=params.producer == ROWS)
    tell(Progress(done=0, total=len(groups), what="files"))
    said = answers(spark(), errand) if spark and groups else _here(errand, tell)
    tell(Progress(done=len(groups), total=len(groups), what="files"))
    return footprint.together([msgspec.json.decode(one.found, type=Found) for one in said])


def _here(errand: Counting, tell: Tell) -> list[Answer]:
    """The same without Spark: reading and sorting leave Python for most of the time."""
    done = list[Answer]()
    with ThreadPoolExecutor(THREADS_MAX, "roquet-audit") as pool:
        for answer in pool.map(errand.do, range(len(errand))):
            done.append(answer)
            tell(Progress(done=len(done), total=len(errand), what="files"))
    return done


def _queues(cluster: Cluster, held: Held, found: Found, tell: Tell) -> list[Queue]:
    """Each queue that the table or the topic knows, with what both say of it."""
    topic = cluster.settings.topics[0]
    bounds = cluster.bounds()  # after the table: so it cannot be ahead
    inside = {(one.name, one.queue_id): one.runs for one in found.queues}
    places = {(broker, number) for _, broker, number in {**bounds.latest, **(held.end or {})}}
    made = []
    for done, (broker, queue_id) in enumerate(sorted(places | inside.keys())):
        tell(Progress(done=done, total=len(places | inside.keys()), what="queues"))
        key = topic, broker, queue_id
        span = bounds.earliest.get(key), bounds.latest.get(key)
        ends = (span[0], span[1]) if span[0] is not None and span[1] is not None else None
        made.append(
            Queue(
                broker=broker,
                queue_id=queue_id,
                runs=inside.get((broker, queue_id), Runs()),
                begin=_begin(held, key),
                end=None if held.end is None else held.end.get(key, 0),
                first=span[0],
                next=span[1],
                edges=hours.edges(cluster, key, ends) if ends else (),
            )
        )
    return made


def _begin(held: Held, key: tuple[str, str, int]) -> int | None:
    """Where the archive began in a queue; of one that came later it wants all."""
    known: Offsets | None = held.begin
    return None if known is None else known.get(key, 0)
