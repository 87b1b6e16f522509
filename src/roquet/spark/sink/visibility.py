"""Visibility: the rows of a batch whose messages consumers can read, and the discarded ones."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from roquet.lake.queue_offsets import (
    OffsetRange,
    OffsetsJson,
    QueueOffsets,
    from_json,
    queue_text,
    to_json,
)
from roquet.model import properties as names
from roquet.model.errors import CallRefused, ConnectFailed, UsageError
from roquet.model.names import CHECK_MAX_TIME_TOPIC
from roquet.spark.cluster.cluster_client import ClusterClient, Pause, sleep_ms
from roquet.spark.cluster.dispatch_wait import wait_for_dispatch
from roquet.spark.cluster.range_reader import RangeReader
from roquet.spark.options import SourceOptions
from roquet.spark.sink.commit_records import row_codes
from roquet.spark.sink.options import SinkOptions
from roquet.wire.calls.offset import MaxOffset

READ_COLUMNS: Final = ("properties",)
NO_ROWS: Final = np.empty(0, np.int64)


class VisibleRows(msgspec.Struct, frozen=True):
    """Rows of a batch by what became of their messages, as codes of `row_codes`."""

    visible: NDArray[np.int64]
    discarded: NDArray[np.int64]
    """Rows whose half messages a broker moved to TRANS_CHECK_MAX_TIME_TOPIC."""
    ends: OffsetsJson
    """The offsets up to which both were read."""


class VisibilityReader:
    """Reads the messages stored in topics since a batch was decided."""

    def __init__(
        self, options: SinkOptions, topics: Iterable[str], pause: Pause = sleep_ms
    ) -> None:
        settings = SourceOptions(
            namesrv=options.namesrv,
            topics=tuple(sorted(topics)),
            timeout_ms=options.timeout_ms,
            access=options.access,
        )
        # A follower may lack messages of its leader, which would then be committed twice.
        self._cluster = ClusterClient(settings, pause=pause, leaders_only=True)

    def ends(self, brokers: Iterable[str]) -> OffsetsJson:
        """Latest offsets of the topics, and of the discarded half messages on these brokers."""
        brokers = list(brokers)
        return to_json(self._cluster.with_retries(lambda: self._now(brokers), "route")[1])

    def since(self, ends: OffsetsJson, prefix: str) -> VisibleRows:
        """Rows with this key prefix whose messages were stored, or discarded, since `ends`."""
        before = from_json(ends)
        brokers = {queue[1] for queue in before if queue[0] == CHECK_MAX_TIME_TOPIC}
        first, now = self._shown_bounds(before, brokers)
        ranges = [
            OffsetRange(*queue, start, end)
            for queue, end in sorted(now.items())
            if (start := _start(before.get(queue), end, first.get(queue, end))) < end
        ]
        discarded = [
            offset_range for offset_range in ranges if offset_range.topic == CHECK_MAX_TIME_TOPIC
        ]
        visible = [
            offset_range for offset_range in ranges if offset_range.topic != CHECK_MAX_TIME_TOPIC
        ]
        return VisibleRows(
            visible=self._rows(visible, prefix),
            discarded=self._rows(discarded, prefix),
            ends=to_json(now),
        )

    def _shown_bounds(
        self, before: QueueOffsets, brokers: Iterable[str]
    ) -> tuple[QueueOffsets, QueueOffsets]:
        """First and next offsets of all queues, once these show what their brokers' logs hold.

        A message that a master hides until its replicas have it would count as invisible, and be
        committed twice. Raises CallTimeout when they are behind for longer than the timeout.
        """

        def attempt() -> tuple[QueueOffsets, QueueOffsets]:
            # Messages in a queue that is not read would count as invisible, too.
            first, now = self._now(brokers)
            if missing := sorted(before.keys() - now.keys()):
                raise ConnectFailed(
                    f"{queue_text(missing[0])} is not in the route: is its broker away?"
                )
            return first, now

        self._cluster.with_retries(attempt, "route")  # each broker is there
        while True:
            masters = dict(self._cluster.addresses)
            for broker in sorted({queue[1] for queue in before}):
                wait_for_dispatch(self._cluster, broker)
            shown = self._cluster.with_retries(attempt, "route")
            if masters == self._cluster.addresses:
                return shown

    def _now(self, brokers: Iterable[str]) -> tuple[QueueOffsets, QueueOffsets]:
        try:
            bounds = self._cluster.bounds()
        except UsageError as error:
            # The topic exists, since it has half messages: it is new, or its broker is away.
            raise ConnectFailed(str(error)) from error
        now = dict(bounds.latest)
        for broker in brokers:
            now[CHECK_MAX_TIME_TOPIC, broker, 0] = 0
            with suppress(CallRefused):  # the broker has never discarded any
                call = MaxOffset(topic=CHECK_MAX_TIME_TOPIC, queue_id=0)
                now[CHECK_MAX_TIME_TOPIC, broker, 0] = self._cluster.ask(broker, call).offset
        return bounds.earliest, now

    def _rows(self, ranges: list[OffsetRange], prefix: str) -> NDArray[np.int64]:
        batches = RangeReader(self._cluster, READ_COLUMNS).batches(ranges) if ranges else ()
        rows = [rows_of(batch.column("properties"), prefix) for batch in batches]
        return np.concatenate([NO_ROWS, *rows])


def _start(before: int | None, end: int, first: int) -> int:
    """The offset from which a queue is read.

    `first` for a new queue, and for one that is shorter than before: its end was lost, and messages
    stored since have the offsets of the lost ones.
    """
    return first if before is None or before > end else before


def rows_of(properties: pa.Array, prefix: str) -> NDArray[np.int64]:
    """The codes of a batch's rows among messages with these properties.

    `prefix` is the part of the row keys that all rows of the batch share.
    """
    keys = pc.map_lookup(properties, names.SINK_ROW, "first").drop_null()
    of_batch = keys.filter(pc.starts_with(keys, prefix))
    suffixes = pc.utf8_slice_codeunits(of_batch, len(prefix))
    suffixes = suffixes.filter(pc.match_substring_regex(suffixes, r"^\d{1,7}/\d{1,12}$"))
    parts = pc.split_pattern(suffixes, "/")
    return row_codes(
        pc.list_element(parts, 0).cast(pa.int32()), pc.list_element(parts, 1).cast(pa.int64())
    )
