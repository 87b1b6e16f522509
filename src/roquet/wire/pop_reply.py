"""Pop reply: the texts in its header: starts, offsets and counts of the queues that were popped.

    starts     retry queueId start; …
    offsets    retry queueId offset,offset,…; …
    counts     retry queueId count; retry qo<queueId>%<offset> count; …

`retry` is the kind of topic, as in a receipt handle.
"""

import re
from collections.abc import Iterable
from typing import Final

from roquet.model.errors import FieldError
from roquet.wire.receipt_handle import retry_kind

_NUMBER: Final = re.compile("[0-9]{1,19}")


def start_info(topic: str, queue_id: int, start: int) -> str:
    """Start offset of the pop of one queue."""
    return f"{retry_kind(topic)} {queue_id} {start}"


def offset_info(topic: str, queue_id: int, offsets: Iterable[int]) -> str:
    """Offsets that a pop delivered from one queue."""
    return f"{retry_kind(topic)} {queue_id} {','.join(map(str, offsets))}"


def queue_count_info(topic: str, queue_id: int, count: int) -> str:
    """Number of earlier deliveries of a queue's messages, if it is equal for all."""
    return f"{retry_kind(topic)} {queue_id} {count}"


def offset_count_info(topic: str, queue_id: int, offset: int, count: int) -> str:
    """Number of earlier deliveries of one message."""
    return f"{retry_kind(topic)} qo{queue_id}%{offset} {count}"


def parse_starts(text: str) -> dict[str, int]:
    """Start offset of each pop of a reply, by `retry@queueId`; also reads counts."""
    return {key: _count(value, text) for key, value in _entries(text)}


def parse_offsets(text: str) -> dict[str, list[int]]:
    """Offsets that each pop of a reply delivered, by `retry@queueId`."""
    return {key: [_count(n, text) for n in value.split(",")] for key, value in _entries(text)}


def _entries(text: str) -> Iterable[tuple[str, str]]:
    for entry in text.split(";"):
        fields = entry.split(" ")
        if len(fields) != 3:
            raise FieldError(f"{entry[:80]!r} is not kind, queue and offset")
        yield f"{fields[0]}@{fields[1]}", fields[2]


def _count(field: str, text: str) -> int:
    if not _NUMBER.fullmatch(field):
        raise FieldError(f"{field[:20]!r} is not an offset: {text[:80]!r}")
    return int(field)
