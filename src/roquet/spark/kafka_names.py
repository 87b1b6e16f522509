"""Kafka's names: a hint for those who bring options and columns of Spark's Kafka source along."""

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
"""Options of Spark's Kafka source in small letters, and what they are called here."""

COLUMNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "value": "column 'body'",
        "headers": "column 'properties'",
        "partition": "column 'order_key', whose messages share a queue",
        "timestamp": "column 'stored_at' of a read; it is set by the broker",
    }
)
"""Columns of Spark's Kafka source and sink, and what they are called here."""


def hint(name: str, known: Iterable[str], words: Mapping[str, str]) -> str:
    """What an unknown name may have meant: Kafka's word for something, or a slip of the pen."""
    if (ours := words.get(name.lower())) is not None:
        return f"; Kafka's {name!r} is {ours} here"
    return suggest(name, known)
