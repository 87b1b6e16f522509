"""Row encoder: Arrow batches of a frame to encoded rows by topic, with a check of every row.

Rows are numbered within their partition. Query, batch, partition and number form the row key of
each message (ROQUET_ROW): the same rows in the same order get the same keys. Errors name the row by
its number.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NoReturn

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from roquet.model import properties as names
from roquet.model.errors import MessageIllegal
from roquet.model.names import can_clients_send_to, topic_fault
from roquet.model.queue import MessageQueue
from roquet.rules.queue_selection import by_hash
from roquet.spark.sink.options import SinkOptions
from roquet.spark.sink.property_columns import (
    DELAY_COLUMNS,
    ArrowColumns,
    UniqueKeyMaker,
    delay_texts,
    is_no_time,
    property_texts_of,
    row_keys,
    transaction_text,
)
from roquet.spark.sink.send_requests import TopicRows
from roquet.wire.java_hash import hash_code

ORDER_KEYS_MAX: Final = 65_536
"""Most order keys whose hash is cached."""

QueueLookup = Callable[[str], Sequence[MessageQueue]]
"""Returns the writable queues of a topic."""


class PartitionOrigin(msgspec.Struct, frozen=True):
    """The part of a row key that all rows of a partition share."""

    query: str
    batch: int
    partition: int

    @property
    def prefix(self) -> str:
        """The text before the row number in a row key."""
        return f"{self.query}/{self.batch}/{self.partition}/"

    def __str__(self) -> str:
        return f"partition {self.partition} of batch {self.batch}"


class RowEncoder:
    """Encodes the rows of one partition."""

    def __init__(
        self,
        options: SinkOptions,
        columns: Sequence[str],
        origin: PartitionOrigin,
        new_keys: UniqueKeyMaker,
        queues: QueueLookup,
    ) -> None:
        self._options = options
        self._columns = {name.lower(): name for name in columns}
        self._origin = origin
        self._new_keys = new_keys
        self._queues = queues
        self._hash = lru_cache(ORDER_KEYS_MAX)(hash_code)
        self._suffix = transaction_text(options) if options.transactional else None
        self._next = self._first = 0

    def rows(self, batch: pa.RecordBatch) -> Iterator[TopicRows]:
        """The rows of a batch by topic; all rows are checked before the first topic is yielded."""
        self._first, self._next = self._next, self._next + len(batch)
        if not len(batch):
            return
        columns = {known: batch.column(name) for known, name in self._columns.items()}
        flags = pc.fill_null(columns["flag"], 0).to_numpy() if "flag" in columns else None
        whole = TopicRows(
            topic="",
            numbers=np.arange(self._first, self._next),
            bodies=self._bodies(columns["body"]),
            texts=self._texts(columns, len(batch)),
            flags=np.zeros(len(batch), np.int32) if flags is None else flags.astype(np.int32),
            later=self._later(columns),
            places=None,
        )
        order = self._order(columns)
        for topic, at in self._topics(columns):
            rows = msgspec.structs.replace(whole if at is None else whole.where(at), topic=topic)
            if order is not None:
                places = self._places(order, topic)
                rows = msgspec.structs.replace(rows, places=places if at is None else places[at])
            yield rows

    # -- what a message is -------------------------------------------------------------------

    def _bodies(self, bodies: pa.Array) -> pa.Array:
        bodies = bodies.cast(pa.binary())
        self._refuse(pc.is_null(bodies), "has no body: a message needs one")
        sizes = pc.binary_length(bodies)
        self._refuse(pc.equal(sizes, 0), "has an empty body: brokers refuse that")
        most = self._options.body_bytes_max
        if (at := _first(pc.greater(sizes, most))) >= 0:
            self._fail(at, f"has a body of {sizes[at]} bytes, over the limit of {most}")
        return bodies

    def _texts(self, columns: ArrowColumns, count: int) -> pa.Array:
        """The property texts; MessageIllegal names the first row whose properties do not encode."""
        first = self._first
        unique, keys = self._new_keys(first, count), row_keys(self._origin.prefix, first, count)
        try:
            texts = property_texts_of(columns, unique, keys)
        except MessageIllegal as error:
            row = first + _first_illegal(columns, unique, keys)
            raise MessageIllegal(f"row {row} of {self._origin}: {error}") from error
        if self._suffix is not None:
            texts = pc.binary_join_element_wise(texts, self._suffix, b"")
        sizes = pc.binary_length(texts)
        most = names.PROPERTIES_SIZE_MAX
        if (at := _first(pc.greater(sizes, most))) >= 0:
            self._fail(at, f"has properties of {sizes[at]} bytes, {most} fit")
        return texts

    def _later(self, columns: ArrowColumns) -> pa.Array | None:
        """The delaying property of each row; None when no row is delayed."""
        texts: list[pa.Array] = []
        for column, name, as_number in DELAY_COLUMNS:
            if column in columns:
                if column == "delay":
                    self._refuse(
                        is_no_time(columns[column]), "has a delay that is not finite or too large"
                    )
                numbers = as_number(columns[column])
                self._refuse(pc.less(numbers, 0), f"has a {column} before now")
                texts.append(delay_texts(numbers, name))
        masks = [pc.is_valid(text).to_numpy(zero_copy_only=False) for text in texts]
        if not any(mask.any() for mask in masks):
            return None
        several = pa.array(np.sum(masks, axis=0) > 1)
        text = "has two delays: delay, delay_level and deliver_at exclude each other"
        self._refuse(several, text)
        return pc.coalesce(*texts)

    # -- where it goes -----------------------------------------------------------------------

    def _topics(self, columns: ArrowColumns) -> list[tuple[str, NDArray[np.int64] | None]]:
        """Each topic with the indices of its rows; None for all rows."""
        if self._options.topic is not None:
            return [(self._options.topic, None)]
        self._refuse(pc.is_null(columns["topic"]), "has no topic")
        coded = columns["topic"].dictionary_encode()
        topics, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy()
        for place, topic in enumerate(topics):
            fault = topic_fault(topic)
            if fault is None and not can_clients_send_to(topic):
                fault = f"topic {topic} is the broker's own: nobody else may send to it"
            if fault is not None:
                self._fail(int(np.argmax(codes == place)), f"has an illegal topic: {fault}")
        if len(topics) == 1:
            return [(topics[0], None)]
        return [(topic, np.flatnonzero(codes == place)) for place, topic in enumerate(topics)]

    def _order(self, columns: ArrowColumns) -> tuple[Sequence[str], NDArray[np.int64]] | None:
        """The distinct order keys, and each row's index into them; None without the column."""
        if "order_key" not in columns:
            return None
        column = columns["order_key"]
        text = "has no order key: with a column 'order_key' each row has one"
        self._refuse(pc.equal(pc.fill_null(column, ""), ""), text)
        coded = column.dictionary_encode()
        return coded.dictionary.to_pylist(), coded.indices.to_numpy()

    def _places(
        self, order: tuple[Sequence[str], NDArray[np.int64]], topic: str
    ) -> NDArray[np.int64]:
        """The queue of each row by its order key, as an index into the topic's queues."""
        keys, codes = order
        count = len(self._queues(topic))
        return np.array([by_hash(self._hash(key), count) for key in keys], np.int64)[codes]

    # -- what is wrong -----------------------------------------------------------------------

    def _refuse(self, wrong: pa.Array, text: str) -> None:
        if (at := _first(wrong)) >= 0:
            self._fail(at, text)

    def _fail(self, at: int, text: str) -> NoReturn:
        raise MessageIllegal(f"row {self._first + at} of {self._origin} {text}")


def _first_illegal(columns: ArrowColumns, unique: pa.Array, keys: pa.Array) -> int:
    """The index of the first row whose properties do not encode, by bisection; there is one."""
    good, bad = 0, len(keys)
    while bad - good > 1:
        count = (good + bad) // 2
        first_columns = {name: column[:count] for name, column in columns.items()}
        try:
            property_texts_of(first_columns, unique[:count], keys[:count])
        except MessageIllegal:
            bad = count
        else:
            good = count
    return good


def _first(wrong: pa.Array) -> int:
    """The index of the first true value; -1 when there is none."""
    return int(pc.index(wrong, True).as_py())
