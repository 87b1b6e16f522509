"""Stored: what the brokers' logs hold at the end of a day."""

from collections.abc import Iterator

import msgspec

from roquet.store.store import Store
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import decode_many


class LoggedMessage(msgspec.Struct, frozen=True):
    """One record of a log."""

    host: str
    topic: str
    name: str
    tries: int
    stored_ms: int
    properties: dict[str, str]


def logged_messages(stores: dict[str, Store]) -> list[LoggedMessage]:
    """Every record of every queue."""
    return [
        one
        for host, store in sorted(stores.items())
        for topic in sorted(store.topics())
        for queue_id in store.queue_ids(topic)
        for one in _queue(host, store, topic, queue_id)
    ]


def _queue(host: str, store: Store, topic: str, queue_id: int) -> Iterator[LoggedMessage]:
    offset, end = store.bounds(topic, queue_id)
    while offset < end:
        part = store.read(topic, queue_id, offset, count_max=1_000, bytes_max=1 << 20)
        for piece in part.parts:
            for record in decode_many(piece):
                yield LoggedMessage(
                    host,
                    topic,
                    record.body.decode("utf-8", "replace"),
                    record.reconsume_times,
                    record.stored_ms,
                    decode_properties(record.properties),
                )
        if part.next_offset <= offset:
            return
        offset = part.next_offset
