"""Stored topics: for which topic the message at a position of the log was sent.

Half messages, and messages that were given up or set aside, are stored in topics of the broker's
own; who may act on one depends on the topic that its sender named.
"""

from typing import Final

from roquet.model import names
from roquet.model import properties as props
from roquet.model.errors import RecordError
from roquet.store.store import Store
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import Record, decode

OF_OTHERS: Final = names.INTERNAL_TOPICS | {names.CHECK_MAX_TIME_TOPIC, names.SET_ASIDE_TOPIC}
"""Topics that hold messages of other topics."""


def topic_at_position(store: Store, position: int) -> str | None:
    """The topic of a message; None where none begins, "" where it is in no queue or unreadable.

    A body may hold bytes that look like a message of any topic: the queue tells which are one.
    """
    raw = store.message_at(position, only_confirmed=False)
    if raw is None:
        return None
    try:
        record = decode(raw)
        start = record.topic, record.queue_id, record.queue_offset
        entries = store.queue_stats.entries(*start, 1)
        if not entries or entries[0][0] != position:
            return ""
        if record.topic in OF_OTHERS:
            return decode_properties(record.properties).get(props.REAL_TOPIC) or record.topic
        return _unshared(record) if names.is_retry(record.topic) else record.topic
    except RecordError:
        return ""


def _unshared(record: Record) -> str:
    """The retry topic of a record, of one group and topic if its older name may be of several."""
    origin = decode_properties(record.properties).get(props.RETRY_TOPIC, "")
    if origin not in names.possible_origins(record.topic):
        return record.topic
    group = record.topic[len(names.RETRY_PREFIX) : -len(origin) - 1]
    return names.pop_retry_topic(group, origin)
