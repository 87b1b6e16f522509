"""Trace messages: records of sends, grouped into messages within the size limits."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from roquet.model import properties as names
from roquet.model.results import SendReceipt
from roquet.rules.message_type import MessageType, message_type
from roquet.wire.records.property_text import decode_properties
from roquet.wire.trace_text import SendTrace, Trace, TraceMessageType

BATCH_MAX: Final = 100
"""Records in one trace message, as in Java: their ids are its keys, which have a limit."""

BATCH_SIZE_MAX: Final = 128_000
"""Characters of one trace message, as in Java."""

KEYS_SIZE_MAX: Final = 16_000
"""Characters of the keys of one trace message, below the limit of all properties."""

_KINDS: Final = {
    MessageType.TRANSACTION: TraceMessageType.HALF,
    MessageType.DELAY: TraceMessageType.DELAYED,
}


class TracedItem(NamedTuple):
    """One message of a stored batch."""

    topic: str
    properties: str
    body_length: int


class SentMessages(NamedTuple):
    """A stored batch, not yet converted into trace records."""

    items: Sequence[TracedItem]
    receipts: Sequence[SendReceipt]
    address: str
    region: str
    at_ms: int
    took_ms: int


def split_batches(traces: Iterator[Trace]) -> Iterator[list[Trace]]:
    """Split records into groups that fit into one message."""
    batch: list[Trace] = []
    size = keys_size = 0
    for trace in traces:
        keys = sum(len(key) + 1 for key in trace_keys([trace]))
        length = keys + 200
        is_full = len(batch) >= BATCH_MAX or size + length > BATCH_SIZE_MAX
        if batch and (is_full or keys_size + keys > KEYS_SIZE_MAX):
            yield batch
            batch, size, keys_size = [], 0, 0
        batch.append(trace)
        size += length
        keys_size += keys
    if batch:
        yield batch


def trace_keys(batch: Sequence[Trace]) -> tuple[str, ...]:
    """The keys by which the records are found: the ids and keys of their messages."""
    keys = dict.fromkeys(trace.message_id for trace in batch)
    for trace in batch:
        keys.update(dict.fromkeys(names.split_keys(getattr(trace, "keys", ""))))
    return tuple(keys)


def to_trace_records(sends: SentMessages, group: str) -> Iterator[SendTrace]:
    """Convert a stored batch into trace records."""
    for item, receipt in zip(sends.items, sends.receipts, strict=True):
        properties = decode_properties(item.properties.encode("utf-8", "surrogatepass"))
        yield SendTrace(
            at_ms=sends.at_ms,
            region=sends.region,
            group=group,
            topic=item.topic,
            message_id=receipt.message_id,
            tag=properties.get(names.TAGS, ""),
            keys=properties.get(names.KEYS, ""),
            store_host=sends.address,
            body_length=item.body_length,
            took_ms=sends.took_ms // len(sends.items),
            kind=_KINDS.get(message_type(properties), TraceMessageType.NORMAL),
            offset_message_id=receipt.offset_message_id,
            success=receipt.ok,
        )
