"""Stored messages: every record of every queue in the brokers' stores, as the checks read them."""

from collections.abc import Iterator, Mapping

import msgspec

from roquet.store.store import Store
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import decode_many


class LoggedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a broker's log."""

    host: str
    topic: str
    name: str
    """Its body."""
    tries: int
    stored_ms: int
    """Since the start of the simulation."""
    properties: dict[str, str]


def logged_messages(stores: Mapping[str, Store], start_ms: int) -> list[LoggedMessage]:
    """Every record of every queue, by host; `start_ms` is the wall time of the start."""
    return [
        message
        for host, store in sorted(stores.items())
        for topic in sorted(store.topics())
        for queue_id in store.queue_ids(topic)
        for message in _of_queue(host, store, topic, queue_id, start_ms)
    ]


def _of_queue(
    host: str, store: Store, topic: str, queue_id: int, start_ms: int
) -> Iterator[LoggedMessage]:
    offset, end = store.bounds(topic, queue_id)
    while offset < end:
        part = store.read(topic, queue_id, offset, count_max=1_000, bytes_max=1 << 20)
        for piece in part.parts:
            for record in decode_many(piece):
                yield LoggedMessage(
                    host=host,
                    topic=topic,
                    name=record.body.decode("utf-8", "replace"),
                    tries=record.reconsume_times,
                    stored_ms=record.stored_ms - start_ms,
                    properties=decode_properties(record.properties),
                )
        if part.next_offset <= offset:
            return
        offset = part.next_offset
