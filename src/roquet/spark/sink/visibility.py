"""Which rows of a batch are there for all to see, and which a broker has given up on."""

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from roquet.model import properties as names
from roquet.model.errors import CallRefused, ConnectFailed, UsageError
from roquet.model.names import CHECK_MAX_TIME_TOPIC
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.cluster.range_reader import RangeReader
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import (
    OffsetRange,
    OffsetsJson,
    QueueOffsets,
    from_json,
    queue_text,
    to_json,
)
from roquet.spark.sink.half_message_refs import row_codes
from roquet.wire.calls.offset import MaxOffset

READ_COLUMNS: Final = ("properties",)
NO_ROWS: Final = np.empty(0, np.int64)


class VisibilityReader:
    """Reads what was stored in topics since a batch was decided."""

    def __init__(self, namesrv: tuple[str, ...], topics: Iterable[str], timeout_ms: int) -> None:
        topics = tuple(sorted(topics))
        settings = SourceOptions(namesrv=namesrv, topics=topics, timeout_ms=timeout_ms)
        # A copy may lack what its leader shows: it would be committed twice.
        self._cluster = ClusterClient(settings, leaders_only=True)

    def ends(self, brokers: Iterable[str]) -> OffsetsJson:
        """How far the topics reach, and on these brokers what was given up."""
        brokers = list(brokers)
        return to_json(self._cluster.with_retries(lambda: self._now(brokers), "route")[1])

    def since(
        self, ends: OffsetsJson, prefix: str
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], OffsetsJson]:
        """The rows seen, those given up, and how far both were read: what comes next is behind."""
        before = from_json(ends)
        brokers = {queue[1] for queue in before if queue[0] == CHECK_MAX_TIME_TOPIC}
        first, now = self._cluster.with_retries(lambda: self._whole(before, brokers), "route")
        pieces = [
            OffsetRange(*queue, start, end)
            for queue, end in sorted(now.items())
            if (start := before.get(queue, first.get(queue, 0))) < end
        ]
        given_up = [piece for piece in pieces if piece.topic == CHECK_MAX_TIME_TOPIC]
        seen = [piece for piece in pieces if piece.topic != CHECK_MAX_TIME_TOPIC]
        return self._rows(seen, prefix), self._rows(given_up, prefix), to_json(now)

    def _whole(
        self, before: QueueOffsets, brokers: Iterable[str]
    ) -> tuple[QueueOffsets, QueueOffsets]:
        """First and next offset of all queues; ConnectFailed while one of before is not there.

        What lies in a queue that nobody looks into would be taken for invisible, and come twice.
        """
        first, now = self._now(brokers)
        if missing := sorted(before.keys() - now.keys()):
            raise ConnectFailed(
                f"{queue_text(missing[0])} is not in the route: is its broker away?"
            )
        return first, now

    def _now(self, brokers: Iterable[str]) -> tuple[QueueOffsets, QueueOffsets]:
        try:
            bounds = self._cluster.bounds()
        except UsageError as error:
            # It holds half messages, so it is there: new this moment, or its broker is away.
            raise ConnectFailed(str(error)) from error
        now = dict(bounds.latest)
        for broker in brokers:
            now[CHECK_MAX_TIME_TOPIC, broker, 0] = self._given_up_end(broker)
        return bounds.earliest, now

    def _given_up_end(self, broker: str) -> int:
        try:
            return self._cluster.ask(
                broker, MaxOffset(topic=CHECK_MAX_TIME_TOPIC, queue_id=0)
            ).offset
        except CallRefused:  # nothing was given up there, ever
            return 0

    def _rows(self, pieces: list[OffsetRange], prefix: str) -> NDArray[np.int64]:
        batches = RangeReader(self._cluster, READ_COLUMNS).batches(pieces) if pieces else ()
        found = [rows_of(batch.column("properties"), prefix) for batch in batches]
        return np.concatenate([NO_ROWS, *found])


def rows_of(properties: pa.Array, prefix: str) -> NDArray[np.int64]:
    """The rows of a batch among messages with these properties; `prefix` begins its keys."""
    keys = pc.map_lookup(properties, names.SINK_ROW, "first").drop_null()
    ours = keys.filter(pc.starts_with(keys, prefix))
    places = pc.utf8_slice_codeunits(ours, len(prefix))
    places = places.filter(pc.match_substring_regex(places, r"^\d{1,7}/\d{1,12}$"))
    parts = pc.split_pattern(places, "/")
    return row_codes(
        pc.list_element(parts, 0).cast(pa.int32()), pc.list_element(parts, 1).cast(pa.int64())
    )
