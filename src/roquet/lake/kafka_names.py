"""Kafka's names: hints for options and columns that Spark's Kafka source calls otherwise."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from roquet.model.settings import suggest

OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka.bootstrap.servers": "option 'namesrv'",
        "subscribe": "option 'topic'",
        "subscribepattern": "option 'topicPattern'",
        "assign": "option 'startingOffsets', which may name queues",
        "kafka.group.id": "option 'group'",
        "groupidprefix": "option 'group'",
        "includeheaders": "column 'properties', which is always there",
        "maxoffsetspertrigger": "option 'maxOffsetsPerTrigger'",
    }
)
"""Options of Spark's Kafka source in lower case, and their names here."""

COLUMNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "value": "column 'body'",
        "headers": "column 'properties'",
        "partition": "column 'order_key', whose messages share a queue",
        "timestamp": "column 'stored_at' of a read; it is set by the broker",
    }
)
"""Columns of Spark's Kafka source and sink, and their names here."""


def hint(name: str, known: Iterable[str], words: Mapping[str, str]) -> str:
    """The end of an error text about an unknown name: our name for it, or the nearest known one."""
    if (ours := words.get(name.lower())) is not None:
        return f"; Kafka's {name!r} is {ours} here"
    return suggest(name, known)
