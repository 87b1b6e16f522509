"""Sending: what one task of a replay does: read rows of its queues in order, send them on."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from roquet.spark.cluster import Cluster
from roquet.spark.jobs.copies import items
from roquet.spark.jobs.courier import Courier
from roquet.spark.jobs.errand import Answer
from roquet.spark.jobs.feeds import in_turns
from roquet.spark.jobs.pace import Pace
from roquet.spark.jobs.runs import Runs
from roquet.spark.jobs.stretches import Choice, Stretch, rows_of
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import Offsets, Queue, to_json
from roquet.spark.sink.task import new_keys


class Hand(msgspec.Struct, frozen=True, kw_only=True):
    """What one task has to send."""

    stretches: tuple[Stretch, ...]
    rate: float | None = None
    """Messages a second."""

    @property
    def rows(self) -> int:
        """How many messages."""
        return sum(stretch.rows for stretch in self.stretches)


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of tables to be sent to a topic."""

    settings: SourceOptions
    """Of the destination."""
    hands: Sequence[Hand]
    ways: Mapping[Queue, Queue]
    since: Offsets
    """Where the destination's queues were when the rows were planned."""
    there: Mapping[Queue, Runs]
    """What was there by then."""
    choice: Choice = Choice()

    def __len__(self) -> int:
        return len(self.hands)

    def do(self, number: int) -> Answer:
        """One task of it; done again, it sends what is not there yet."""
        hand = self.hands[number]
        cluster = Cluster(self.settings)
        sources = {stretch.source: stretch for stretch in hand.stretches}
        ways = {source: self.ways[source] for source in sources}
        courier = Courier(cluster, ways, self.since, Pace(hand.rate, cluster.pause))
        courier.begin()
        make, rows = new_keys(), Counter[Queue]()
        feeds = {
            source: rows_of(stretch, self.choice, self.there.get(source, Runs()))
            for source, stretch in sources.items()
        }
        made = 0
        for source, batch in in_turns(feeds):
            texts = items(batch, source[0], make(made, len(batch)))
            courier.send(source, batch.column("queue_offset"), texts)
            rows[source] += len(batch)
            made += len(batch)
        return Answer(rows=to_json(dict(rows)), doubled=courier.doubled)
