"""Letters: a group's dead and waiting messages as a table that says why, and counts of them. Pure.

letter_id      TOPIC/BROKER/QUEUE/OFFSET of the dead-letter or retry topic
state          dead, or waiting: in a retry topic, where it was tried again or will be
reason         what the message itself tells
tries          how often its handler failed on it
origin_topic   where it was sent to, and origin_id, the id that it had there
failed_at      when the broker took it back the last time
consumer       the member that gave it back, where a message says so; genuine brokers and ours
               keep no such thing, so it is null unless consumers set CONSUMER themselves
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquet.model import names, properties
from roquet.spark.jobs.resend_rows import coordinates

RAW_COLUMNS: Final = (
    *("topic", "broker", "queue_id", "queue_offset", "message_id", "key", "keys", "tag"),
    *("body", "properties", "born_at", "stored_at", "flag", "reconsume_times"),
)
"""Columns of the topics that a table of letters is made of."""

CONSUMER: Final = "CONSUMER"
"""A property in which a consumer may say who it is; nobody has to."""

GROUP_COLUMNS: Final = ("state", "origin_topic", "tag", "day", "reason")
"""What letters are counted by."""

_TIME: Final = pa.timestamp("us", "UTC")

SCHEMA: Final = pa.schema(
    {
        "letter_id": pa.string(),
        "state": pa.string(),
        "reason": pa.string(),
        "tries": pa.int32(),
        "origin_topic": pa.string(),
        "origin_id": pa.string(),
        "failed_at": _TIME,
        "born_at": _TIME,
        "consumer": pa.string(),
        "day": pa.date32(),
        "topic": pa.string(),
        "broker": pa.string(),
        "queue_id": pa.int32(),
        "queue_offset": pa.int64(),
        "message_id": pa.string(),
        "keys": pa.string(),
        "tag": pa.string(),
        "body": pa.binary(),
        "properties": pa.map_(pa.string(), pa.string()),
        "flag": pa.int32(),
    }
)


def transform(rows: pa.RecordBatch, tries_max: int) -> pa.RecordBatch:
    """Messages of dead-letter and retry topics as letters; `tries_max` is what the group allows."""
    told = rows.column("properties")
    is_dead = pc.starts_with(rows.column("topic"), names.DLQ_PREFIX)
    tries = pc.fill_null(rows.column("reconsume_times"), 0)
    stored = rows.column("stored_at")
    made: dict[str, Any] = {
        "letter_id": coordinates(rows, ""),
        "state": pc.if_else(is_dead, "dead", "waiting"),
        "reason": _reasons(is_dead, tries, tries_max),
        "tries": tries,
        "origin_topic": _origin_topics(told),
        "origin_id": pc.coalesce(
            _property(told, properties.DLQ_ORIGIN_MESSAGE_ID),
            _property(told, properties.UNIQUE_KEY),
            _property(told, properties.ORIGIN_MESSAGE_ID),
        ),
        "failed_at": stored,
        "consumer": _property(told, CONSUMER),
        "day": stored.cast(pa.date32(), safe=False),
    }
    columns = [
        (made[name] if name in made else rows.column(name)).cast(SCHEMA.field(name).type)
        for name in SCHEMA.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def count_by_reason(letters: pa.Table, sent: Sequence[str] = ()) -> pa.Table:
    """How many letters there are by topic, tag, day and reason, and how many were sent again."""
    is_sent = pc.is_in(letters["letter_id"], pa.array(list(sent), pa.string()))
    counted = letters.select(list(GROUP_COLUMNS)).append_column("sent", is_sent.cast(pa.int64()))
    found = counted.group_by(list(GROUP_COLUMNS)).aggregate([([], "count_all"), ("sent", "sum")])
    named = found.rename_columns([_COUNT_NAMES.get(name, name) for name in found.column_names])
    return named.select([*GROUP_COLUMNS, "letters", "sent"]).sort_by(
        [(name, "ascending") for name in GROUP_COLUMNS]
    )


_COUNT_NAMES: Final = {"count_all": "letters", "sent_sum": "sent"}


def select_by_id(letters: pa.Table, ids: Sequence[str]) -> pa.Table:
    """The letters of these ids: their own, or those of the messages that they were."""
    wanted = pa.array(list(ids), pa.string())
    columns = ("letter_id", "message_id", "origin_id")
    hits = [pc.is_in(letters[name], wanted).combine_chunks().to_numpy(False) for name in columns]
    return letters.filter(pa.array(np.logical_or.reduce(hits)))


def unknown_ids(letters: pa.Table, ids: Sequence[str]) -> list[str]:
    """Ids that no letter has."""
    columns = ("letter_id", "message_id", "origin_id")
    known = {one for name in columns for one in letters[name].to_pylist()}
    return [one for one in ids if one not in known]


def select_sendable(letters: pa.Table, sent: Sequence[str]) -> pa.Table:
    """The dead ones that were not sent again and say where they came from, in their old order."""
    fresh = pc.invert(pc.is_in(letters["letter_id"], pa.array(list(sent), pa.string())))
    is_dead = pc.equal(letters["state"], "dead")
    found = letters.filter(pc.and_(pc.and_(fresh, is_dead), pc.is_valid(letters["origin_topic"])))
    return found.sort_by([(name, "ascending") for name in ("broker", "queue_id", "queue_offset")])


def _reasons(is_dead: pa.Array, tries: pa.Array, tries_max: int) -> pa.Array:
    text = tries.cast(pa.string())
    is_one = pc.equal(tries, 1)
    times = pc.if_else(is_one, " time", " times")
    # The last failure counts, too: a message that was tried again 16 times failed 17 times.
    spent = pc.binary_join_element_wise("failed ", text, times, ", no try was left", "")
    failures = pc.if_else(is_one, " failure", " failures")
    given_up = pc.binary_join_element_wise("given up after ", text, failures, "")
    waits = pc.binary_join_element_wise("failed ", text, times, ", is tried again", "")
    dead = pc.if_else(pc.greater(tries, tries_max), spent, given_up)
    return pc.if_else(is_dead, dead, waits)


def _origin_topics(told: pa.Array) -> pa.Array:
    """The topic that a user sent the message to; null when it does not say."""
    topic = pc.coalesce(
        _property(told, properties.DLQ_ORIGIN_TOPIC), _property(told, properties.RETRY_TOPIC)
    )
    inner = pc.or_(
        pc.starts_with(topic, names.RETRY_PREFIX), pc.starts_with(topic, names.DLQ_PREFIX)
    )
    return pc.if_else(pc.fill_null(inner, False), None, topic)


def _property(told: pa.Array, name: str) -> pa.Array:
    """A property; null where it is missing or empty."""
    found = pc.map_lookup(told, name, "first").cast(pa.string())
    return pc.if_else(pc.equal(found, ""), None, found)
