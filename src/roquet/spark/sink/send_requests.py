"""Send requests: the rows of one topic cut into batches and single messages."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from roquet.arrow.encode import batch_body, split_evenly
from roquet.model.queue import MessageQueue

RECORD_OVERHEAD_BYTES: Final = 160
"""Bytes that a broker adds to a message of a batch when it stores it: the fixed part of a record,
91 bytes less the 22 of the batch, the names of topic and cluster, and two addresses."""

COUNT_MAX: Final = 32_768
"""Most messages of one request: Roquet brokers accept twice as many."""


class SendRequest(msgspec.Struct, frozen=True, gc=False):
    """One request: a batch of messages, or a single message."""

    topic: str
    row: int
    """Number of the first row within the partition."""
    count: int
    body: bytes
    queue: MessageQueue | None = None
    """The queue that the order key selects; None for round robin."""
    properties: str | None = None
    """Properties of a single message; None for a batch, whose messages have their own."""
    flag: int = 0


class TopicRows(msgspec.Struct, frozen=True):
    """Encoded rows of one topic, column by column."""

    topic: str
    numbers: NDArray[np.int64]
    bodies: pa.Array
    texts: pa.Array
    """The property text of each row."""
    flags: NDArray[np.int32]
    later: pa.Array | None
    """The delaying property of each row, null without a delay; None when no row is delayed."""
    places: NDArray[np.int64] | None
    """The queue of each row, as an index into the topic's queues; None for round robin."""

    def __len__(self) -> int:
        return len(self.numbers)

    def where(self, rows: NDArray[np.int64]) -> "TopicRows":
        """The rows at these indices."""
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
    """The requests for the rows; those of one queue in row order. `alone` sends single messages."""
    sizes = _sizes(rows.bodies) + _sizes(rows.texts) + (RECORD_OVERHEAD_BYTES + len(rows.topic))
    single = np.ones(len(rows), np.bool_) if alone else sizes > batch_bytes
    if rows.later is not None:
        single |= pc.is_valid(rows.later).to_numpy(zero_copy_only=False)
    for queue, at in _by_queue(rows, queues):
        # Rows between two single messages form a batch of their own, which keeps the order.
        for part in np.split(at, np.flatnonzero(np.diff(single[at])) + 1):
            if single[part[0]]:
                yield from _singles(rows.where(part), queue)
            else:
                yield from _batches(rows, part, queue, sizes[part], batch_bytes)


def _by_queue(
    rows: TopicRows, queues: Sequence[MessageQueue]
) -> Iterator[tuple[MessageQueue | None, NDArray[np.int64]]]:
    """Each queue with the indices of its rows, of which there is one at least, in row order."""
    if not len(rows):
        return
    if rows.places is None:
        yield None, np.arange(len(rows))
        return
    order = np.argsort(rows.places, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(rows.places[order])) + 1):
        yield queues[int(rows.places[part[0]])], part


def _batches(
    rows: TopicRows,
    at: NDArray[np.int64],
    queue: MessageQueue | None,
    sizes: NDArray[np.int64],
    batch_bytes: int,
) -> Iterator[SendRequest]:
    """Batches of the rows at these indices, of these sizes."""
    for first, last in split_evenly(sizes, batch_bytes, COUNT_MAX):
        part = at[first:last]
        body = batch_body(rows.bodies, rows.texts, rows.flags, part)
        yield SendRequest(rows.topic, int(rows.numbers[part[0]]), last - first, body, queue)


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
