"""repair: a group's dead letters become a table that says why; chosen ones are sent again, once.

    main(Params(group="billing", directory="/lake/billing-letters"))

    DIR/raw/TOPIC/       archives of the dead-letter topic, and of retry topics if they are wanted
    DIR/letters/         the table: a file for each file of the archives, so each letter once
    DIR/_roquet/resends  which letters were sent again

A letter stays in its topic and in the table; what is sent again is a new message with ROQUET_FROM
(the letter) and RESENT_FROM (its id). The note of a letter comes before its copy. After a kill
between the two the next run finds the copy, or sends it: nothing goes twice.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from roquet.admin.dead_letters import RESENT_FROM
from roquet.model.errors import ConfigError, RoquetError, UsageError
from roquet.model.names import DLQ_PREFIX, RETRY_PREFIX, check_group, retry_topic
from roquet.model.settings import suggest
from roquet.rules.topic_id import is_other_topic
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.archive import archive_job
from roquet.spark.jobs.exactly_once_sender import ExactlyOnceSender, read_originals
from roquet.spark.jobs.job_runner import spark_for
from roquet.spark.jobs.queue_mapping import map_queues
from roquet.spark.jobs.repair.dead_letters import (
    RAW_COLUMNS,
    SCHEMA,
    count_by_reason,
    select_by_id,
    select_sendable,
    transform,
    unknown_ids,
)
from roquet.spark.jobs.repair.resend_log import ResendDecision, ResendLog
from roquet.spark.jobs.resend_rows import resend_items
from roquet.spark.options import SourceOptions, parse
from roquet.spark.queue_offsets import (
    OffsetsJson,
    QueueKey,
    QueueOffsets,
    from_json,
    ranges,
    to_json,
)
from roquet.spark.sink.task import unique_key_maker
from roquet.spark.tables.disk import sync
from roquet.spark.tables.open_table import directory
from roquet.spark.tables.parquet_writer import LEVELS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIES_MAX: Final = 16
"""What groups allow when nobody has set it otherwise."""

OPTIONS: Final = ("namesrv", "timeout", "group", "failOnDataLoss")
"""Options of the source that are for repairs."""

BATCH_ROWS: Final = 4_096
"""Letters that are sent at a time."""


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """What a user wants of a repair."""

    group: str
    directory: str
    options: Mapping[str, str] = {}
    """Of the source: namesrv, timeout."""
    retries: bool = False
    """Also what waits in the group's retry topics."""
    tries_max: int = TRIES_MAX
    """How often the group allows a message to be tried again."""
    resend: bool = False
    where: str | None = None
    """Which ones go again: a condition on the table's columns, in SQL."""
    ids: tuple[str, ...] = ()
    """Or these: ids of letters or of messages."""
    master: str | None = None


class RepairProgress(msgspec.Struct, kw_only=True):
    """What a run has done."""

    letters: int = 0
    """In the table."""
    new: int = 0
    chosen: int = 0
    sent: int = 0
    finished: int = 0
    """Letters that an earlier run had decided on, and this one sent."""
    before: int = 0
    """Chosen ones that had gone before."""
    lost: int = 0
    """Chosen ones that do not say where they came from, or are not dead."""


OnRepairProgress = Callable[[RepairProgress], object]


def main(params: Params) -> RepairProgress:
    """Repair with the Spark that is there, or one on this machine."""
    return run(params, lambda: spark_for("roquet repair", params.master))


def run(
    params: Params, spark: "Callable[[], SparkSession]", tell: OnRepairProgress = lambda _: None
) -> RepairProgress:
    """Bring the table up to date, and send again what is chosen."""
    check_params(params)
    root = directory(params.directory)
    progress = RepairProgress()
    for topic in _letter_topics(params):
        _archive_topic(params, root, topic, spark)
        progress.new += _convert_new_files(root, topic, params.tries_max)
        tell(progress)
    progress.letters = read_letters(root, ["letter_id"]).num_rows
    if params.resend:
        with ResendLog(root) as resends:
            work = _Resender(params, root, resends, progress, tell)
            work.finish()
            work.send(chosen(params, root, spark))
    tell(progress)
    return progress


def check_params(params: Params) -> None:
    """ConfigError or UsageError for what cannot be."""
    check_group(params.group)
    for name in params.options:
        if name.lower() not in {known.lower() for known in OPTIONS}:
            hint = suggest(name, OPTIONS)
            raise ConfigError(f"option {name!r} is not for repairs{hint}")
    if (params.where is not None or params.ids) and not params.resend:
        raise ConfigError("a choice is for letters that are sent again: say --resend")
    if params.where is not None and params.ids:
        raise ConfigError("--where or --id: letters are chosen in one way")
    if params.resend and params.where is None and not params.ids:
        raise ConfigError("which letters? --where with a condition ('true' is all), or --id")


def read_letters(root: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The table of letters."""
    files = sorted(map(str, (root / "letters").glob("*.parquet")))
    if not files:
        return SCHEMA.empty_table().select(list(columns or SCHEMA.names))
    return ds.dataset(files, schema=SCHEMA).to_table(columns=list(columns or SCHEMA.names))


def count_letters(params: Params) -> pa.Table:
    """How many letters there are, by topic, tag, day and reason."""
    root = directory(params.directory)
    with ResendLog(root) as resends:
        sent = sorted(resends.letters())
    return count_by_reason(
        read_letters(root, ["letter_id", "state", "origin_topic", "tag", "day", "reason"]), sent
    )


def chosen(params: Params, root: Path, spark: "Callable[[], SparkSession]") -> pa.Table:
    """The letters that a user means."""
    letters = read_letters(root)
    if params.where is None:
        if missing := unknown_ids(letters, params.ids):
            raise UsageError(f"no letter of group {params.group!r} has the id {missing[0]!r}")
        return select_by_id(letters, params.ids)
    if not letters.num_rows:
        return letters
    return select_by_id(letters, _ids_where(params.where, root, spark()))


def _ids_where(where: str, root: Path, spark: "SparkSession") -> list[str]:
    """The letters that fit a condition; UsageError for one that Spark cannot read or work out."""
    from pyspark.errors import PySparkException

    try:
        found = spark.read.parquet(str(root / "letters")).where(where).select("letter_id")
        return [row["letter_id"] for row in found.collect()]
    except PySparkException as error:
        told = next((line for line in str(error).splitlines() if line.strip()), "")
        raise UsageError(f"--where {where!r}: {told.rstrip(';')}") from error


# -- the table -------------------------------------------------------------------------------


def _letter_topics(params: Params) -> list[str]:
    """The topics that there are; UsageError for a group that has none."""
    name = re.escape(params.group)
    found = list(_matching_topics(params, f"{DLQ_PREFIX}{name}"))
    if params.retries:
        prefix = f"{retry_topic(params.group)}_"
        retried = _matching_topics(params, f"{RETRY_PREFIX}{name}(_.*)?")
        # Another group's name may begin like this one's: what follows has to be a topic.
        users = set(_matching_topics(params, ".*")) if retried else set()
        found += [
            one for one in retried if not one.startswith(prefix) or one[len(prefix) :] in users
        ]
    if not found:
        raise UsageError(f"group {params.group!r} has no dead letters: there is no topic of them")
    return found


def _matching_topics(params: Params, pattern: str) -> tuple[str, ...]:
    cluster = ClusterClient(parse({**params.options, "topicPattern": pattern}, os.environ))
    return cluster.with_retries(cluster.topics, "name server")


def _archive_directory(root: Path, topic: str) -> Path:
    return root / "raw" / quote(topic, safe="")


def _archive_topic(
    params: Params, root: Path, topic: str, spark: "Callable[[], SparkSession]"
) -> None:
    """A topic of letters as it is: each message once, from where the last run came to."""
    wanted = archive_job.Params(
        topic=topic,
        target=str(_archive_directory(root, topic)),
        options=params.options,
        columns=RAW_COLUMNS,
    )
    archive_job.run(wanted, spark)


def _convert_new_files(root: Path, topic: str, tries_max: int) -> int:
    """Make a file of letters of each file of the archive that has none; gives how many letters."""
    (root / "letters").mkdir(parents=True, exist_ok=True)
    rows = 0
    for file in sorted(_archive_directory(root, topic).glob("day=*/*.parquet")):
        place = root / "letters" / file.name
        if not place.exists():
            rows += _convert_file(file, place, tries_max)
    return rows


def _convert_file(file: Path, place: Path, tries_max: int) -> int:
    draft = place.with_name(f".{place.name}.draft")
    data = ds.dataset(str(file), format="parquet")
    rows = 0
    level = LEVELS["zstd"]
    with pq.ParquetWriter(draft, SCHEMA, compression="zstd", compression_level=level) as writer:
        for batch in data.to_batches(columns=list(RAW_COLUMNS), batch_size=BATCH_ROWS):
            writer.write_batch(transform(batch, tries_max))
            rows += len(batch)
    sync(draft)
    draft.replace(place)
    return rows


# -- what is sent again ----------------------------------------------------------------------


class _Resender:
    """Letters on their way back."""

    def __init__(
        self,
        params: Params,
        root: Path,
        resends: ResendLog,
        progress: RepairProgress,
        tell: OnRepairProgress,
    ) -> None:
        self._params, self._root, self._resends = params, root, resends
        self._progress, self._tell = progress, tell

    def finish(self) -> None:
        """Send what an earlier run has decided on and not sent."""
        for resend in self._resends.open():
            letters = select_by_id(read_letters(self._root), resend.letters)
            self._progress.finished += self._sent(resend, letters)
            self._resends.done(resend)

    def send(self, letters: pa.Table) -> None:
        """Decide on letters, and send them."""
        gone = self._resends.letters()
        found = select_sendable(letters, sorted(gone))
        told = self._progress
        told.chosen = letters.num_rows
        told.before = sum(letter in gone for letter in letters["letter_id"].to_pylist())
        told.lost = told.chosen - told.before - found.num_rows
        if not found.num_rows:
            return
        ends: OffsetsJson = {}
        ids: dict[tuple[str, str], str] = {}
        for topic in _origin_topics(found):
            bounds = self._cluster(topic).bounds()
            ends |= to_json(bounds.latest)
            ids |= bounds.topic_ids
        resend = self._resends.decide(found["letter_id"].to_pylist(), ends, ids)
        told.sent = self._sent(resend, found)
        self._resends.done(resend)

    def _sent(self, resend: ResendDecision, letters: pa.Table) -> int:
        """Send what is not there yet, topic by topic."""
        count = 0
        ends = from_json(resend.ends)
        for topic in _origin_topics(letters):
            rows = letters.filter(pc.equal(letters["origin_topic"], topic))
            since = {queue: offset for queue, offset in ends.items() if queue[0] == topic}
            known = resend.topic_ids.get(topic, {})
            count += self._to_topic(topic, since, known, select_sendable(rows, ()))
            self._tell(self._progress)
        return count

    def _to_topic(
        self, topic: str, since: QueueOffsets, known: Mapping[str, str], rows: pa.Table
    ) -> int:
        cluster = self._cluster(topic)
        latest = cluster.latest()
        there = read_originals(cluster, ranges(_scan_start(cluster, since, known), latest))
        route = cluster.with_retries(lambda: cluster.route(topic), "name server")
        queues = [(one.topic, one.broker_name, one.queue_id) for one in route.write_queues(topic)]
        sources = _rows_by_queue(rows)
        courier = ExactlyOnceSender(cluster, map_queues(sources, queues), latest)
        courier.begin()  # what was on its way to its queue a moment ago
        make, count, made = unique_key_maker(), 0, 0
        for source, batch in sources.items():
            offsets = batch.column("queue_offset").to_numpy()
            left = ~there[source].holds(offsets) if source in there else offsets >= 0
            some = batch.filter(pa.array(left))
            if len(some):
                ids, olds = make(made, len(some)), some.column("message_id")
                texts = resend_items(some, source[0], ids, {"message_id": ids, RESENT_FROM: olds})
                count += courier.send(source, some.column("queue_offset"), texts)
                made += len(some)
        return count

    def _cluster(self, topic: str) -> ClusterClient:
        return ClusterClient(self._settings(topic))

    def _settings(self, topic: str) -> SourceOptions:
        return parse({**self._params.options, "topic": topic}, os.environ)


def _scan_start(
    cluster: ClusterClient, since: QueueOffsets, known: Mapping[str, str]
) -> QueueOffsets:
    """From where on copies are looked for: in a topic made anew they may lie anywhere."""
    now = cluster.topic_ids
    if not any(is_other_topic(known.get(broker), one) for (_, broker), one in now.items()):
        return since
    anew = {
        queue: first
        for queue, first in cluster.earliest().items()
        if is_other_topic(known.get(queue[1]), now.get(queue[:2]))
    }
    return {**since, **anew}


def _origin_topics(letters: pa.Table) -> list[str]:
    return sorted(topic for topic in set(letters["origin_topic"].to_pylist()) if topic)


def _rows_by_queue(rows: pa.Table) -> dict[QueueKey, pa.RecordBatch]:
    """The rows of each queue of letters, in their order."""
    columns = [rows[name].to_pylist() for name in ("topic", "broker", "queue_id")]
    places: dict[QueueKey, list[int]] = {}
    for place, queue in enumerate(zip(*columns, strict=True)):
        places.setdefault(queue, []).append(place)
    found: dict[QueueKey, pa.RecordBatch] = {}
    for queue, own in sorted(places.items()):
        [found[queue]] = rows.take(pa.array(own)).combine_chunks().to_batches()
    return found


def raise_if_unsendable(progress: RepairProgress) -> None:
    """RoquetError when some of the chosen ones cannot be sent."""
    if progress.lost:
        raise RoquetError(
            f"{progress.lost} of the chosen letters cannot be sent: they are not dead, or do not "
            "say what topic they came from"
        )
