"""Parcels: rows of one topic cut into the requests that carry them."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from roquet.arrow.encode import batch_items, join_items, split_evenly
from roquet.model.queue import MessageQueue

RECORD_OVERHEAD_BYTES: Final = 160
"""What a broker adds to a message of a batch when it stores it: the fixed part of a record is
91 bytes, less the 22 of the batch; then the topic's name, the cluster's, and two addresses."""

COUNT_MAX: Final = 32_768
"""Messages of one request: our brokers take twice as many."""


class SendRequest(msgspec.Struct, frozen=True, gc=False):
    """One request: a batch of messages, or one alone."""

    topic: str
    row: int
    """The number of its first row."""
    count: int
    body: bytes
    queue: MessageQueue | None = None
    """The queue that its order key says; None leaves it to the queues' turns."""
    properties: str | None = None
    """Of a message alone; None is a batch, whose messages have their own."""
    flag: int = 0


class TopicRows(msgspec.Struct, frozen=True):
    """Rows of one topic, ready to be sent: what each message is, column by column."""

    topic: str
    numbers: NDArray[np.int64]
    bodies: pa.Array
    texts: pa.Array
    """The text of the properties of each."""
    flags: NDArray[np.int32]
    later: pa.Array | None
    """The property that delays it, null where none does; None when nothing is delayed."""
    places: NDArray[np.int64] | None
    """The queue of each, as a place in the topic's list; None leaves it to the queues' turns."""

    def __len__(self) -> int:
        return len(self.numbers)

    def where(self, rows: NDArray[np.int64]) -> "TopicRows":
        """Some of them."""
        picked = pa.array(rows)
        return TopicRows(
            self.topic,
            self.numbers[rows],
            self.bodies.take(picked),
            self.texts.take(picked),
            self.flags[rows],
            None if self.later is None else self.later.take(picked),
            None if self.places is None else self.places[rows],
        )


def cut_requests(
    rows: TopicRows, queues: Sequence[MessageQueue], batch_bytes: int, *, alone: bool
) -> Iterator[SendRequest]:
    """The requests that carry the rows; of one queue, in the order of the rows."""
    if rows.places is None:
        yield from _of_queue(rows, None, batch_bytes, alone=alone)
        return
    order = np.argsort(rows.places, kind="stable")
    edges = np.flatnonzero(np.diff(rows.places[order])) + 1
    for part in np.split(order, edges):
        queue = queues[int(rows.places[part[0]])]
        yield from _of_queue(rows.where(part), queue, batch_bytes, alone=alone)


def _of_queue(
    rows: TopicRows, queue: MessageQueue | None, batch_bytes: int, *, alone: bool
) -> Iterator[SendRequest]:
    overhead = RECORD_OVERHEAD_BYTES + len(rows.topic)
    sizes = _sizes(rows.bodies) + _sizes(rows.texts) + overhead
    single = np.ones(len(rows), np.bool_) if alone else sizes > batch_bytes
    if rows.later is not None:
        single |= pc.is_valid(rows.later).to_numpy(zero_copy_only=False)
    if not single.any():
        yield from _batches(rows, queue, sizes, batch_bytes)
        return
    # What lies between two that go alone is a batch of its own: their order stays.
    edges = np.flatnonzero(np.diff(single)) + 1
    for part in np.split(np.arange(len(rows)), edges):
        some = rows.where(part)
        if single[part[0]]:
            yield from _singles(some, queue)
        else:
            yield from _batches(some, queue, sizes[part], batch_bytes)


def _batches(
    rows: TopicRows, queue: MessageQueue | None, sizes: NDArray[np.int64], batch_bytes: int
) -> Iterator[SendRequest]:
    items = batch_items(rows.bodies, rows.texts, rows.flags)
    for first, last in split_evenly(sizes, batch_bytes, COUNT_MAX):
        yield SendRequest(
            rows.topic,
            int(rows.numbers[first]),
            last - first,
            join_items(items, first, last),
            queue,
        )


def _singles(rows: TopicRows, queue: MessageQueue | None) -> Iterator[SendRequest]:
    later = [None] * len(rows) if rows.later is None else rows.later.to_pylist()
    texts = rows.texts.cast(pa.string()).to_pylist()
    columns = zip(
        rows.numbers.tolist(), rows.bodies.to_pylist(), texts, rows.flags.tolist(), later,
        strict=True,
    )  # fmt: skip
    for number, body, text, flag, delay in columns:
        yield SendRequest(rows.topic, number, 1, body, queue, text + (delay or ""), flag)


def _sizes(column: pa.Array) -> NDArray[np.int64]:
    sizes: NDArray[np.int64] = pc.binary_length(column).to_numpy().astype(np.int64)
    return sizes
