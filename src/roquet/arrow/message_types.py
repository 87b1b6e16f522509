"""Kinds: what a message is for, by the topic it lies in and by what it says of itself.

    half · op · delay · timer · retry · dead · system     by the topic
    transaction · delay · timer · ordered · normal         of users' topics, by flags and properties

Where a message waits, or waited in vain, its properties tell where it belongs.
"""

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from roquet.model import names, properties
from roquet.model.flags import TRANSACTION_MASK, SysFlag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.arrow.records import RecordColumns

_BY_TOPIC: "Final[Mapping[str, str]]" = MappingProxyType(
    {
        names.HALF_TOPIC: "half",
        names.OP_HALF_TOPIC: "op",
        names.SCHEDULE_TOPIC: "delay",
        names.TIMER_TOPIC: "timer",
        names.CHECK_MAX_TIME_TOPIC: "half",
    }
)

_OWN: Final = ("normal", "ordered", "timer", "delay", "transaction", "half")
"""What a message of a user's topic may be."""

_TIMED: Final = (
    properties.TIMER_DELIVER_MS,
    properties.TIMER_DELAY_MS,
    properties.TIMER_DELAY_SEC,
    properties.TIMER_OUT_MS,
)


def message_type_of_topic(topic: str) -> str | None:
    """What all messages of a topic are; None for a user's topic, where each says it itself."""
    if names.is_retry(topic):
        return "retry"
    if names.is_dlq(topic):
        return "dead"
    if (found := _BY_TOPIC.get(topic)) is not None:
        return found
    is_ours = topic in names.SYSTEM_TOPICS or topic.startswith(names.SYSTEM_TOPIC_PREFIX)
    return "system" if is_ours else None


def message_types(records: "RecordColumns") -> pa.Array:
    """What each message is for."""
    topics, numbers = _topics(records)
    kinds = [message_type_of_topic(topic) for topic in topics]
    by_topic = pa.array(kinds, pa.string()).take(numbers)
    return pc.coalesce(by_topic, _own_kinds(records)) if None in kinds else by_topic


def real_topics(records: "RecordColumns") -> pa.Array:
    """Where each message belongs: its own topic, when it does not say another one."""
    own = records.topics()
    topics, numbers = _topics(records)
    found = own
    for kind, said in (
        ("retry", (properties.RETRY_TOPIC,)),
        ("dead", (properties.DLQ_ORIGIN_TOPIC, properties.RETRY_TOPIC)),
        ("waits", (properties.REAL_TOPIC,)),
    ):
        wanted = _rows(topics, numbers, kind)
        if wanted is not None:
            told = pc.coalesce(*(records.property(name) for name in said), own)
            found = pc.if_else(wanted, told, found)
    return found


def real_queue_ids(records: "RecordColumns") -> pa.Array:
    """The queue there, where it is known: a message that failed does not remember it."""
    own = records.head("queue_id")
    topics, numbers = _topics(records)
    failed = [_rows(topics, numbers, kind) for kind in ("retry", "dead")]
    found = own
    for wanted in failed:
        if wanted is not None:
            found = pc.if_else(wanted, pa.scalar(None, pa.int32()), found)
    if (wanted := _rows(topics, numbers, "waits")) is not None:
        said = records.property(properties.REAL_QUEUE_ID)
        number = pc.if_else(pc.match_substring_regex(said, r"^\d{1,9}$"), said, None)
        found = pc.if_else(wanted, number.cast(pa.int32()), found)
    return found


def _own_kinds(records: "RecordColumns") -> pa.Array:
    """What messages of users' topics say; what is found last holds."""
    found = np.zeros(len(records), np.int8)
    found[_has(records, properties.SHARDING_KEY)] = _OWN.index("ordered")
    for name in _TIMED:
        found[_has(records, name)] = _OWN.index("timer")
    found[_has(records, properties.DELAY)] = _OWN.index("delay")
    transaction = records.sys_flags & TRANSACTION_MASK
    found[transaction == SysFlag.TRANSACTION_COMMIT] = _OWN.index("transaction")
    found[transaction == SysFlag.TRANSACTION_PREPARED] = _OWN.index("half")
    return pa.array(_OWN, pa.string()).take(pa.array(found))


def _has(records: "RecordColumns", name: str) -> NDArray[np.bool_]:
    values = records.property(name)
    there = pc.and_kleene(pc.is_valid(values), pc.not_equal(values, "0"))
    return np.asarray(there.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _topics(records: "RecordColumns") -> tuple[list[str], pa.Array]:
    """The different topics, few as they are, and the number of each record's."""
    coded = records.topics().dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices


def _rows(topics: list[str], numbers: pa.Array, kind: str) -> pa.Array | None:
    """The rows whose topic is of a kind; None when no topic is. Halves, timers and so on wait."""
    kinds = ("half", "op", "delay", "timer", "system") if kind == "waits" else (kind,)
    wanted = [message_type_of_topic(topic) in kinds for topic in topics]
    return pa.array(wanted, pa.bool_()).take(numbers) if any(wanted) else None
