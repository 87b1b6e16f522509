"""Repair job: a group's dead letters become a table, and chosen ones are sent again, each once.

    main(Params(group="billing", directory="/lake/billing-letters"))

    DIR/raw/TOPIC/       archives of the dead-letter topic, and of retry topics on request
    DIR/letters/         the table: one file for each file of the archives, so each letter once
    DIR/_roquet/resends  which letters were sent again

The table lies in a directory or in an object store.

A letter stays in its topic and in the table. A resent letter is a new message with the properties
ROQUET_FROM (the letter) and RESENT_FROM (the letter's message id). The decision to send is noted
before anything is sent. After a kill in between, the next run looks for the copies and sends those
that are missing, so no letter is sent twice.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from roquet.admin.dead_letters import RESENT_FROM
from roquet.lake.objects.object_location import TableLocation
from roquet.lake.open_table import table_location
from roquet.lake.queue_offsets import (
    OffsetsJson,
    QueueKey,
    QueueOffsets,
    from_json,
    ranges,
    to_json,
)
from roquet.model.errors import ConfigError, RoquetError, UsageError
from roquet.model.names import DLQ_PREFIX, RETRY_PREFIX, check_group, retried_topic
from roquet.model.settings import suggest
from roquet.rules.topic_id import is_other_topic
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.archive import archive_job
from roquet.spark.jobs.exactly_once_sender import ExactlyOnceSender, read_originals, writable_queues
from roquet.spark.jobs.job_runner import spark_for
from roquet.spark.jobs.repair.letter_table import (
    RAW_COLUMNS,
    archive_location,
    convert_new_files,
    count_by_reason,
    read_letters,
    select_by_id,
    select_sendable,
    unknown_ids,
)
from roquet.spark.jobs.repair.resend_log import ResendDecision, ResendLog, resent_letters
from roquet.spark.jobs.resend_rows import resend_items
from roquet.spark.jobs.send_plan import map_queues
from roquet.spark.options import parse
from roquet.spark.sink.task import unique_key_maker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOLD_ROWS: Final = 8_192
"""Letters between two looks at the lease: each may wait for its broker."""

TRIES_MAX: Final = 16
"""RocketMQ's default number of retries of a group."""

OPTIONS: Final = ("namesrv", "timeout", "group", "failOnDataLoss")
"""Options of the source that apply to repairs."""


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a repair."""

    group: str
    directory: str
    options: Mapping[str, str] = {}
    """Options of the source: namesrv, timeout."""
    retries: bool = False
    """Include messages that wait in the group's retry topics."""
    tries_max: int = TRIES_MAX
    """Retries that the group allows."""
    resend: bool = False
    where: str | None = None
    """Send the letters that meet this SQL condition on the table's columns."""
    ids: tuple[str, ...] = ()
    """Or send these: ids of letters or of messages."""
    storage: Mapping[str, str] = {}
    """Options of the object store of `directory`; the environment gives those not here."""
    master: str | None = None


class RepairProgress(msgspec.Struct, kw_only=True):
    """The progress of a run."""

    letters: int = 0
    """Letters in the table."""
    new: int = 0
    chosen: int = 0
    sent: int = 0
    finished: int = 0
    """Letters that this run has sent by the decision of an earlier one."""
    before: int = 0
    """Chosen letters that were sent before."""
    lost: int = 0
    """Chosen letters that cannot be sent: without an original topic, or not dead."""


OnRepairProgress = Callable[[RepairProgress], object]


def main(params: Params) -> RepairProgress:
    """Run the repair with the provided Spark session, or with a local one."""
    return run(params, lambda: spark_for("roquet repair", params.master))


def run(
    params: Params,
    spark: "Callable[[], SparkSession]",
    on_progress: OnRepairProgress = lambda _: None,
) -> RepairProgress:
    """Update the table, and send the chosen letters again."""
    check_params(params)
    root = table_location(params.directory, params.storage)
    progress = RepairProgress()
    for topic in _letter_topics(params):
        archive = archive_job.Params(
            topic=topic,
            target=str(archive_location(root, topic)),
            options=params.options,
            columns=RAW_COLUMNS,
            storage=params.storage,
        )
        archive_job.run(archive, spark)
        progress.new += convert_new_files(root, topic, params.tries_max)
        on_progress(progress)
    progress.letters = read_letters(root, ["letter_id"]).num_rows
    if params.resend:
        with ResendLog(root) as resend_log:
            resender = _Resender(params, root, resend_log, progress, on_progress)
            resender.finish()
            resender.send(select_letters(params, root, spark))
    on_progress(progress)
    return progress


def check_params(params: Params) -> None:
    """Raise ConfigError or UsageError for parameters that contradict each other."""
    check_group(params.group)
    for name in params.options:
        if name.lower() not in {known.lower() for known in OPTIONS}:
            hint = suggest(name, OPTIONS)
            raise ConfigError(f"option {name!r} is not for repairs{hint}")
    if (params.where is not None or params.ids) and not params.resend:
        raise ConfigError("--where and --id choose letters to send again: add --resend")
    if params.where is not None and params.ids:
        raise ConfigError("--where and --id exclude each other: give one of them")
    if params.resend and params.where is None and not params.ids:
        raise ConfigError("--resend needs --where with a condition ('true' chooses all), or --id")


def count_letters(params: Params) -> pa.Table:
    """Count the letters by topic, tag, day and reason."""
    root = table_location(params.directory, params.storage)
    sent = sorted(resent_letters(root))
    columns = ["letter_id", "state", "origin_topic", "tag", "day", "reason"]
    return count_by_reason(read_letters(root, columns), sent)


def select_letters(
    params: Params, root: TableLocation, spark: "Callable[[], SparkSession]"
) -> pa.Table:
    """The letters that the parameters choose; UsageError for an unknown id."""
    letters = read_letters(root)
    if params.where is None:
        if missing := unknown_ids(letters, params.ids):
            raise UsageError(f"no letter of group {params.group!r} has the id {missing[0]!r}")
        return select_by_id(letters, params.ids)
    if not letters.num_rows:
        return letters
    return select_by_id(letters, _ids_where(params.where, letters, spark()))


def _ids_where(where: str, letters: pa.Table, spark: "SparkSession") -> list[str]:
    """Ids of the letters that meet a condition; UsageError for one that Spark cannot evaluate."""
    from pyspark.errors import PySparkException

    try:
        chosen = spark.createDataFrame(letters).where(where).select("letter_id")
        return [row["letter_id"] for row in chosen.collect()]
    except PySparkException as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), "")
        raise UsageError(f"--where {where!r}: {reason.rstrip(';')}") from error


# -- the table -------------------------------------------------------------------------------


def _letter_topics(params: Params) -> list[str]:
    """The group's dead-letter topic, and its retry topics on request; UsageError without any."""
    group = re.escape(params.group)
    topics = list(_matching_topics(params, f"{DLQ_PREFIX}{group}"))
    if params.retries:
        retry_topics = _matching_topics(params, f"{RETRY_PREFIX}{group}([_+].*)?")
        # Another group's name may begin like this one's, so what follows has to be a topic.
        existing = set(_matching_topics(params, ".*")) if retry_topics else set()
        topics += [
            topic
            for topic in retry_topics
            if (origin := retried_topic(params.group, topic)) == topic or origin in existing
        ]
    if not topics:
        raise UsageError(f"group {params.group!r} has no dead letters: it has no topic for them")
    return topics


def _matching_topics(params: Params, pattern: str) -> tuple[str, ...]:
    cluster = ClusterClient(parse({**params.options, "topicPattern": pattern}, os.environ))
    return cluster.with_retries(cluster.topics, "name server")


# -- sending again ---------------------------------------------------------------------------


class _Resender:
    def __init__(
        self,
        params: Params,
        root: TableLocation,
        resend_log: ResendLog,
        progress: RepairProgress,
        on_progress: OnRepairProgress,
    ) -> None:
        self._params, self._root, self._resend_log = params, root, resend_log
        self._progress, self._on_progress = progress, on_progress

    def finish(self) -> None:
        """Send what earlier runs decided on and may not have sent."""
        for decision in self._resend_log.open():
            letters = select_by_id(read_letters(self._root), decision.letters)
            self._progress.finished += self._send_decided(decision, letters)
            self._resend_log.done(decision)

    def send(self, letters: pa.Table) -> None:
        """Decide on the letters that can be sent, and send them."""
        sent_before = self._resend_log.letters()
        sendable = select_sendable(letters, sorted(sent_before))
        progress = self._progress
        progress.chosen = letters.num_rows
        ids = letters["letter_id"].to_pylist()
        progress.before = sum(letter in sent_before for letter in ids)
        progress.lost = progress.chosen - progress.before - sendable.num_rows
        if not sendable.num_rows:
            return
        ends: OffsetsJson = {}
        topic_ids: dict[tuple[str, str], str] = {}
        for topic in _origin_topics(sendable):
            bounds = self._cluster(topic).bounds()
            ends |= to_json(bounds.latest)
            topic_ids |= bounds.topic_ids
        decision = self._resend_log.decide(sendable["letter_id"].to_pylist(), ends, topic_ids)
        progress.sent = self._send_decided(decision, sendable)
        self._resend_log.done(decision)

    def _send_decided(self, decision: ResendDecision, letters: pa.Table) -> int:
        """Send the letters that have no copies yet, topic by topic; returns their count."""
        count = 0
        ends = from_json(decision.ends)
        for topic in _origin_topics(letters):
            rows = letters.filter(pc.equal(letters["origin_topic"], topic))
            since = {queue: offset for queue, offset in ends.items() if queue[0] == topic}
            known_ids = decision.topic_ids.get(topic, {})
            count += self._send_to_topic(topic, since, known_ids, select_sendable(rows, ()))
            self._on_progress(self._progress)
        return count

    def _send_to_topic(
        self, topic: str, since: QueueOffsets, known_ids: Mapping[str, str], rows: pa.Table
    ) -> int:
        cluster = self._cluster(topic)
        latest = cluster.latest()
        start = _scan_start(cluster, since, known_ids)
        already_sent = read_originals(cluster, ranges(start, latest))
        queues = writable_queues(cluster, topic, latest)
        sources = _rows_by_queue(rows)
        sender = ExactlyOnceSender(cluster, map_queues(sources, queues), latest)
        sender.begin()  # finds copies that reached their queues only just now
        make_ids, count, made = unique_key_maker(), 0, 0
        for source, batch in sources.items():
            offsets = batch.column("queue_offset").to_numpy()
            if source in already_sent:
                batch = batch.filter(pa.array(~already_sent[source].holds(offsets)))
            for first in range(0, len(batch), HOLD_ROWS):
                part = batch.slice(first, HOLD_ROWS)
                self._resend_log.hold()
                new_ids, old_ids = make_ids(made, len(part)), part.column("message_id")
                ours = {"message_id": new_ids, RESENT_FROM: old_ids}
                items = resend_items(part, source[0], new_ids, ours)
                count += sender.send(source, part.column("queue_offset"), items)
                made += len(part)
        return count

    def _cluster(self, topic: str) -> ClusterClient:
        # A replica may lack copies that its master has, which would be sent twice.
        settings = parse({**self._params.options, "topic": topic}, os.environ)
        return ClusterClient(settings, leaders_only=True)


def _scan_start(
    cluster: ClusterClient, since: QueueOffsets, known_ids: Mapping[str, str]
) -> QueueOffsets:
    """The offsets from which copies are looked for.

    `since` are those of the decision. A topic that was recreated after it is searched from its
    beginning.
    """
    topic_ids = cluster.topic_ids
    if not any(
        is_other_topic(known_ids.get(broker), topic_id)
        for (_, broker), topic_id in topic_ids.items()
    ):
        return since
    recreated = {
        queue: first
        for queue, first in cluster.earliest().items()
        if is_other_topic(known_ids.get(queue[1]), topic_ids.get(queue[:2]))
    }
    return {**since, **recreated}


def _origin_topics(letters: pa.Table) -> list[str]:
    return sorted(topic for topic in set(letters["origin_topic"].to_pylist()) if topic)


def _rows_by_queue(rows: pa.Table) -> dict[QueueKey, pa.RecordBatch]:
    columns = [rows[name].to_pylist() for name in ("topic", "broker", "queue_id")]
    places: dict[QueueKey, list[int]] = {}
    for place, queue in enumerate(zip(*columns, strict=True)):
        places.setdefault(queue, []).append(place)
    by_queue: dict[QueueKey, pa.RecordBatch] = {}
    for queue, own in sorted(places.items()):
        [by_queue[queue]] = rows.take(pa.array(own)).combine_chunks().to_batches()
    return by_queue


def raise_if_unsendable(progress: RepairProgress) -> None:
    """Raise RoquetError when some of the chosen letters could not be sent."""
    if progress.lost:
        raise RoquetError(
            f"{progress.lost} of the chosen letters cannot be sent: they are not dead, or do not "
            "name the topic that they came from"
        )
