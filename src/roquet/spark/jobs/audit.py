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
from roquet.rules.topic_id import is_another
from roquet.spark.cluster import Cluster
from roquet.spark.jobs import footprint, hours
from roquet.spark.jobs.audit_report import Report, RowGap, compared, placed
from roquet.spark.jobs.coverage import Runs, Span
from roquet.spark.jobs.errand import Answer, Errand
from roquet.spark.jobs.findings import Queue
from roquet.spark.jobs.footprint import Counting, Found
from roquet.spark.jobs.places import Locating, Place
from roquet.spark.jobs.running import JobFailed, answers, spark_for
from roquet.spark.options import SourceOptions, parse
from roquet.spark.plan import recreation
from roquet.spark.queue_offsets import Offsets, TopicIds
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
    now = cluster.bounds()  # a topic that there is not is said before all files are read
    _check_same(params, held, now.topic_ids)
    files = _Files(held, spark, tell)
    found = files.counted(params)
    queues = _queues(cluster, held, found, tell)
    report = compared(params.target, held, found, queues, counted)
    return placed(report, files.located(params.topic, report.row_gaps))


def settings_of(params: Params) -> SourceOptions:
    """Where the topic is."""
    if not params.topic.strip() or "," in params.topic:
        raise ConfigError(f"an audit is of one topic, not of {params.topic!r}")
    for name in params.options:
        if name.lower() not in ALLOWED:
            raise ConfigError(f"option {name!r} is not for audits: they are of all messages")
    return parse({**params.options, "topic": params.topic}, os.environ)


def _check_same(params: Params, held: Held, now: TopicIds) -> None:
    """JobFailed where the table is of a topic that was deleted, and another has its name."""
    known = {(held.topic, broker): one for broker, one in held.topic_ids.items()}
    read = {(topic, broker, queue): at for (topic, broker, queue), at in (held.end or {}).items()}
    anew = {queue for queue in read if is_another(known.get(queue[:2]), now.get(queue[:2]))}
    for what in recreation(anew, read, now):
        raise JobFailed(
            f"{params.target} and topic {params.topic!r} are not of the same messages: {what}."
            " Audit an archive of the new one"
        )


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


class _Files:
    """The files of a table, and who looks at them."""

    def __init__(self, held: Held, spark: "Callable[[], SparkSession] | None", tell: Tell) -> None:
        self._spark, self._tell = spark, tell
        try:
            self._groups = grouped(held.paths, lambda path: Path(path).stat().st_size)
        except FileNotFoundError as error:
            text = f"{error.filename} is gone: files were merged meanwhile; start again"
            raise JobFailed(text) from None

    def counted(self, params: Params) -> Found:
        """What is in all of them."""
        keys = params.producer == ROWS
        said = self._done(Counting(groups=self._groups, topic=params.topic, keys=keys))
        return footprint.together([msgspec.json.decode(one.found, type=Found) for one in said])

    def located(self, topic: str, row_gaps: Sequence[RowGap]) -> list[Place]:
        """Where rows are that are there twice."""
        wanted: dict[str, list[Span]] = {}
        for gap in row_gaps:
            if gap.what == "doubled":
                wanted.setdefault(gap.writer, []).append(Span(gap.start, gap.end))
        if not wanted:
            return []
        said = self._done(Locating(groups=self._groups, topic=topic, wanted=wanted))
        return [one for part in said for one in msgspec.json.decode(part.found, type=list[Place])]

    def _done(self, errand: Errand) -> list[Answer]:
        """By Spark, or here: reading and sorting leave Python for most of the time."""
        total, done = len(errand), list[Answer]()
        self._tell(Progress(done=0, total=total, what="files"))
        if self._spark is not None and total:
            done = answers(self._spark(), errand)
            self._tell(Progress(done=total, total=total, what="files"))
            return done
        with ThreadPoolExecutor(THREADS_MAX, "roquet-audit") as pool:
            for answer in pool.map(errand.do, range(total)):
                done.append(answer)
                self._tell(Progress(done=len(done), total=total, what="files"))
        return done


def _queues(cluster: Cluster, held: Held, found: Found, tell: Tell) -> list[Queue]:
    """Each queue that the table or the topic knows, with what both say of it."""
    topic = cluster.settings.topics[0]
    bounds = cluster.bounds()  # after the table: so it cannot be ahead
    inside = {(one.name, one.queue_id): one.runs for one in found.queues}
    places = {(broker, number) for _, broker, number in {**bounds.latest, **(held.end or {})}}
    made = []
    total = len(places | inside.keys())
    for done, (broker, queue_id) in enumerate(sorted(places | inside.keys())):
        tell(Progress(done=done, total=total, what="queues"))
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
    tell(Progress(done=total, total=total, what="queues"))
    return made


def _begin(held: Held, key: tuple[str, str, int]) -> int | None:
    """Where the archive began in a queue; of one that came later it wants all."""
    known: Offsets | None = held.begin
    return None if known is None else known.get(key, 0)
