"""Message types: the purpose of each message, from its topic, flags and properties.

    half · op · delay · timer · retry · dead · system     by the topic
    transaction · delay · timer · ordered · normal         of users' topics, by flags and properties

For messages that wait or failed in a system topic, properties name the topic they belong to.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

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

PropertyOf = Callable[[str], pa.Array]
"""Gives one property of each record."""

_WAITING: Final = ("half", "op", "delay", "timer", "system")
"""Types of messages whose properties name the topic and queue to which they will be delivered."""


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


def message_types(
    topics: pa.Array, sys_flags: NDArray[np.int32], property_of: PropertyOf
) -> pa.Array:
    """The type of each message, from its topic, system flags and properties."""
    coded = topics.dictionary_encode()
    types = [message_type_of_topic(topic) for topic in coded.dictionary.to_pylist()]
    by_topic = pa.array(types, pa.string()).take(coded.indices)
    if None not in types:
        return by_topic
    return pc.coalesce(by_topic, _types_by_content(sys_flags, property_of))


def real_topics(topics: pa.Array, property_of: PropertyOf) -> pa.Array:
    """The topic to which each message belongs: its own, unless a property names another."""
    real, coded = topics, topics.dictionary_encode()
    for types, sources in (
        (("retry",), (properties.RETRY_TOPIC,)),
        (("dead",), (properties.DLQ_ORIGIN_TOPIC, properties.RETRY_TOPIC)),
        (_WAITING, (properties.REAL_TOPIC,)),
    ):
        rows = _rows_of_types(coded, types)
        if rows is not None:
            named = pc.coalesce(*map(property_of, sources), topics)
            real = pc.if_else(rows, named, real)
    return real


def real_queue_ids(topics: pa.Array, queue_ids: pa.Array, property_of: PropertyOf) -> pa.Array:
    """The queue id in the real topic; null for retries and dead letters, which do not hold it."""
    real, coded = queue_ids, topics.dictionary_encode()
    if (failed := _rows_of_types(coded, ("retry", "dead"))) is not None:
        real = pc.if_else(failed, pa.scalar(None, pa.int32()), real)
    if (waiting := _rows_of_types(coded, _WAITING)) is not None:
        text = property_of(properties.REAL_QUEUE_ID)
        number = pc.if_else(pc.match_substring_regex(text, r"^\d{1,9}$"), text, None)
        real = pc.if_else(waiting, number.cast(pa.int32()), real)
    return real


def _types_by_content(sys_flags: NDArray[np.int32], property_of: PropertyOf) -> pa.Array:
    """The types of messages in users' topics; of several, the last one set below applies."""
    types = np.zeros(len(sys_flags), np.int8)
    types[_is_set(property_of(properties.SHARDING_KEY))] = _OWN.index("ordered")
    for name in _TIMED:
        types[_is_set(property_of(name))] = _OWN.index("timer")
    types[_is_set(property_of(properties.DELAY))] = _OWN.index("delay")
    transaction = sys_flags & TRANSACTION_MASK
    types[transaction == SysFlag.TRANSACTION_COMMIT] = _OWN.index("transaction")
    types[transaction == SysFlag.TRANSACTION_PREPARED] = _OWN.index("half")
    return pa.array(_OWN, pa.string()).take(pa.array(types))


def _is_set(values: pa.Array) -> NDArray[np.bool_]:
    """Whether each record has a property, with another value than 0."""
    is_set = pc.and_kleene(pc.is_valid(values), pc.not_equal(values, "0"))
    return np.asarray(is_set.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _rows_of_types(coded: pa.DictionaryArray, types: tuple[str, ...]) -> pa.Array | None:
    """A mask of the rows whose topic is of one of these types; None if no row is."""
    is_wanted = [message_type_of_topic(topic) in types for topic in coded.dictionary.to_pylist()]
    return pa.array(is_wanted, pa.bool_()).take(coded.indices) if any(is_wanted) else None
