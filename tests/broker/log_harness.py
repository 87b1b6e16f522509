"""A broker's log with what its services need, in memory, and its clock in our hand."""

from collections.abc import Sequence
from typing import Any

from tests.broker.conftest import FakePeer

from roquet.broker.filtering.filter_cache import FilterCache
from roquet.broker.ingest.append import BrokerOrigin, Ingest
from roquet.broker.ingest.destination import Destinations
from roquet.broker.ingest.set_aside import SetAside
from roquet.broker.log.flush import Flush
from roquet.broker.log.long_polling import LongPolling
from roquet.broker.log.message_log import MessageLog
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.tables.topics import Topics
from roquet.model.topic import TopicConfig
from roquet.store.config import StoreConfig
from roquet.store.store import Store
from roquet.testing.clock import VirtualClock
from roquet.wire.records.record import Record, decode_many

SMALL = StoreConfig(
    log_file_size=1 << 20, queue_file_entries=1_000, index_slots=20, index_entries=1_000
)
HOST = b"\x0a\x00\x00\x01\x00\x00\x2a\x9f"
HOST_V6 = bytes(15) + b"\x01\x00\x00\x2a\x9f"


class LogHarness:
    """A log, the way into it, and a topic with four queues."""

    def __init__(
        self, topic: str = "orders", host: bytes = HOST, store: Store | None = None, **settings: Any
    ) -> None:
        self.clock = VirtualClock()
        self.config = BrokerConfig(**settings)
        self.settings = RuntimeSettings(self.config)
        self.peer = FakePeer()
        self.origin = BrokerOrigin(store_host=host, pid=7, seed=1)
        self.topics = Topics(None, self.config, 0)
        self.topics.put(TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4), 0)
        self.open_log(store or Store.open(None, SMALL, now_ms=0))

    def open_log(self, store: Store) -> None:
        """What a process does as it starts."""
        self.store = store
        self.arrived: list[tuple[str, int, int]] = []
        self.arrivals = LongPolling(self.clock)
        self.ingest = Ingest(store, self.config, self.clock, self.origin, self._arrive)
        self.flush = Flush(store, self.settings, self.clock)
        self.set_aside = SetAside(store, self.ingest, self.topics, self.clock)
        self.destinations = Destinations(
            topics=self.topics, clock=self.clock, settings=self.settings
        )
        self.message_log = MessageLog(
            store=store, ingest=self.ingest, flush=self.flush, arrivals=self.arrivals,
            filters=FilterCache(), memory=0,
        )  # fmt: skip

    def _arrive(self, topic: str, queue_id: int, offset: int, codes: Sequence[int]) -> None:
        self.arrived.append((topic, queue_id, offset))
        self.arrivals.arrived(topic, queue_id, offset, codes)

    def close(self) -> None:
        self.flush.close()
        self.store.close(0)

    def records(self, topic: str = "orders", queue_id: int = 0) -> list[Record]:
        messages = self.store.read(topic, queue_id, 0, count_max=200_000, bytes_max=1 << 30)
        return [record for part in messages.parts for record in decode_many(part)]

    def bodies(self, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
        return [record.body for record in self.records(topic, queue_id)]
