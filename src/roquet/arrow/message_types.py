"""Message types: the purpose of each message, from its topic, flags and properties.

    half · op · delay · timer · retry · dead · system     by the topic
    transaction · delay · timer · ordered · normal         of users' topics, by flags and properties

For messages that wait or failed in a system topic, properties name the topic they belong to.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from roquet.model import names, properties
from roquet.model.flags import TRANSACTION_MASK, SysFlag

_BY_TOPIC: Final[Mapping[str, str]] = MappingProxyType(
    {
        names.HALF_TOPIC: "half",
        names.OP_HALF_TOPIC: "op",
        names.SCHEDULE_TOPIC: "delay",
        names.TIMER_TOPIC: "timer",
        names.CHECK_MAX_TIME_TOPIC: "half",
    }
)

_OWN: Final = ("normal", "ordered", "timer", "delay", "transaction", "half")
"""The types of messages in users' topics."""

_TIMED: Final = (
    properties.TIMER_DELIVER_MS,
    properties.TIMER_DELAY_MS,
    properties.TIMER_DELAY_SEC,
    properties.TIMER_OUT_MS,
)

_WAITING: Final = ("half", "op", "delay", "timer", "system")
"""Types of messages whose properties name the topic and queue to which they will be delivered."""


class TypedRecords(Protocol):
    """Record columns from which the type of a message is told; `arrow.records` has them."""

    def __len__(self) -> int:
        """The number of records."""

    @property
    def sys_flags(self) -> NDArray[np.int32]:
        """The system flags of each record."""

    def topics(self) -> pa.Array:
        """The topic of each record."""

    def head(self, name: str) -> pa.Array:
        """A number from the head of each record."""

    def property(self, name: str) -> pa.Array:
        """One property of each record."""


def message_type_of_topic(topic: str) -> str | None:
    """The type of all messages of a topic; None for a user's topic, where messages differ."""
    if names.is_retry(topic):
        return "retry"
    if names.is_dlq(topic):
        return "dead"
    if (message_type := _BY_TOPIC.get(topic)) is not None:
        return message_type
    is_system = topic in names.SYSTEM_TOPICS or topic.startswith(names.SYSTEM_TOPIC_PREFIX)
    return "system" if is_system else None


def message_types(records: TypedRecords) -> pa.Array:
    """The type of each message."""
    topics, indices = _topics(records)
    types = [message_type_of_topic(topic) for topic in topics]
    by_topic = pa.array(types, pa.string()).take(indices)
    return pc.coalesce(by_topic, _types_by_content(records)) if None in types else by_topic


def real_topics(records: TypedRecords) -> pa.Array:
    """The topic to which each message belongs: its own, unless a property names another."""
    real = own = records.topics()
    topics, indices = _topics(records)
    for types, sources in (
        (("retry",), (properties.RETRY_TOPIC,)),
        (("dead",), (properties.DLQ_ORIGIN_TOPIC, properties.RETRY_TOPIC)),
        (_WAITING, (properties.REAL_TOPIC,)),
    ):
        rows = _rows_of_types(topics, indices, types)
        if rows is not None:
            named = pc.coalesce(*(records.property(name) for name in sources), own)
            real = pc.if_else(rows, named, real)
    return real


def real_queue_ids(records: TypedRecords) -> pa.Array:
    """The queue id in the real topic; null for retries and dead letters, which do not hold it."""
    real = records.head("queue_id")
    topics, indices = _topics(records)
    if (failed := _rows_of_types(topics, indices, ("retry", "dead"))) is not None:
        real = pc.if_else(failed, pa.scalar(None, pa.int32()), real)
    if (waiting := _rows_of_types(topics, indices, _WAITING)) is not None:
        text = records.property(properties.REAL_QUEUE_ID)
        number = pc.if_else(pc.match_substring_regex(text, r"^\d{1,9}$"), text, None)
        real = pc.if_else(waiting, number.cast(pa.int32()), real)
    return real


def _types_by_content(records: TypedRecords) -> pa.Array:
    """The types of messages in users' topics; of several, the last one set below applies."""
    types = np.zeros(len(records), np.int8)
    types[_has(records, properties.SHARDING_KEY)] = _OWN.index("ordered")
    for name in _TIMED:
        types[_has(records, name)] = _OWN.index("timer")
    types[_has(records, properties.DELAY)] = _OWN.index("delay")
    transaction = records.sys_flags & TRANSACTION_MASK
    types[transaction == SysFlag.TRANSACTION_COMMIT] = _OWN.index("transaction")
    types[transaction == SysFlag.TRANSACTION_PREPARED] = _OWN.index("half")
    return pa.array(_OWN, pa.string()).take(pa.array(types))


def _has(records: TypedRecords, name: str) -> NDArray[np.bool_]:
    """Whether each record has a property, with another value than 0."""
    values = records.property(name)
    is_set = pc.and_kleene(pc.is_valid(values), pc.not_equal(values, "0"))
    return np.asarray(is_set.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _topics(records: TypedRecords) -> tuple[list[str], pa.Array]:
    """The distinct topics, which are few, and the index of each record's."""
    coded = records.topics().dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices


def _rows_of_types(topics: list[str], indices: pa.Array, types: tuple[str, ...]) -> pa.Array | None:
    """A mask of the rows whose topic is of one of these types; None if no row is."""
    is_wanted = [message_type_of_topic(topic) in types for topic in topics]
    return pa.array(is_wanted, pa.bool_()).take(indices) if any(is_wanted) else None
