"""Parts of a broker for replication, without the rest of it, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from roquet.broker.filtering.filter_cache import FilterCache
from roquet.broker.ingest.append import BrokerOrigin, Ingest
from roquet.broker.log.flush import Flush
from roquet.broker.log.long_polling import LongPolling
from roquet.broker.log.message_log import MessageLog
from roquet.broker.replication.confirmation.acknowledgements import Acknowledgements
from roquet.broker.replication.role import Role, RoleCell
from roquet.broker.replication.stream.framing import classic_master
from roquet.broker.replication.stream.stream_client import StreamClient
from roquet.broker.replication.stream.stream_server import StreamServer
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.rules.replication.acknowledgement import BrokerRole, DeploymentMode
from roquet.store.config import StoreConfig
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Draft, Store
from roquet.testing.clock import this_loop
from roquet.wire.replication.classic_stream import LogFrame, LogFrameDecoder, encode_report
from roquet.wire.replication.replica_proof import CHALLENGE

ORIGIN = BrokerOrigin(store_host=b"\x0a\x00\x00\x01\x00\x00\x2a\x9f", pid=1, seed=1)


class ReplicationParts:
    """The parts of one broker that replicate its log. Made while a virtual loop runs."""

    def __init__(
        self,
        role: Role | None = None,
        mode: DeploymentMode = DeploymentMode.FIXED_ROLES,
        files: MemoryFiles | None = None,
        **settings: Any,
    ) -> None:
        self.clock = clock = this_loop().clock
        config = BrokerConfig(**settings)
        layout = StoreConfig(log_file_size=config.log_file_size, queue_file_entries=1_000)
        self.store = store = Store.open(None, layout, files=files, now_ms=clock.now_ms())
        self.settings = RuntimeSettings(config)
        self.flush = Flush(store, self.settings, clock)
        self.arrivals = LongPolling(clock)
        self.role = RoleCell(role or Role(role=config.broker_role, broker_id=config.broker_id))
        self.acknowledgements = Acknowledgements(
            store, self.flush, self.settings, clock, self.role, mode
        )
        framing = classic_master(store, self.acknowledgements, self.settings)
        self.server = StreamServer(store, self.settings, clock, self.role, framing)
        self.log = MessageLog(
            store=store,
            ingest=Ingest(store, config, clock, ORIGIN, self.arrivals.arrived),
            flush=self.flush,
            arrivals=self.arrivals,
            filters=FilterCache(),
            memory=1 << 30,
        )
        self.client = StreamClient(self.log, self.settings, clock, self.role)
        self.role.on_change += [
            self.acknowledgements.configure,
            self.server.follow_role,
            self.client.follow_role,
        ]
        self.settings.subscribe(self.acknowledgements.configure)
        self.settings.subscribe(self.server.end_unwelcome, "ha_replicas", "ha_plain_replicas")

    def append(self, count: int = 1, size: int = 10) -> int:
        """Append messages; gives where the log ends then."""
        for _ in range(count):
            draft = Draft("orders", 0, b"x" * size, b"", 0, store_host=ORIGIN.store_host)
            self.store.append(draft, self.clock.now_ms())
        return self.store.end_position

    def close(self) -> None:
        self.flush.close()
        self.store.close(self.clock.now_ms())


MakeParts = Callable[..., ReplicationParts]


@pytest.fixture
def parts() -> Iterator[MakeParts]:
    made: list[ReplicationParts] = []

    def make(*arguments: Any, **settings: Any) -> ReplicationParts:
        made.append(ReplicationParts(*arguments, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


SYNC: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 2}
"""Settings of a master that waits for one replica."""


class Replica:
    """A replica that reports what a test says, and keeps what it is sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.received = b""
        self.is_over = False
        self._decoder = LogFrameDecoder()
        self.frames: list[LogFrame] = []
        self._reading = asyncio.create_task(self._read(reader))

    def report(self, log_end: int) -> None:
        self.writer.write(encode_report(log_end))

    @property
    def log(self) -> bytes:
        """All bytes of the log that it got."""
        return b"".join(frame.body for frame in self.frames)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while chunk := await reader.read(1 << 20):
                self.received += chunk
                if not self.received.startswith(CHALLENGE):
                    self.frames += self._decoder.feed(chunk)
        except ConnectionError:
            pass
        self.is_over = True

    def close(self) -> None:
        self._reading.cancel()
        self.writer.transport.abort()


@asynccontextmanager
async def connected(made: ReplicationParts) -> AsyncIterator[Replica]:
    if not made.server.port:
        await made.server.start("127.0.0.1", 0)
    replica = Replica(*await asyncio.open_connection("127.0.0.1", made.server.port))
    try:
        yield replica
    finally:
        replica.close()
        await made.clock.sleep(1)


def log_of(made: ReplicationParts, position: int = 0) -> bytes:
    parts = []
    while part := bytes(made.store.raw.read(position, 1 << 20)):
        parts.append(part)
        position += len(part)
    return b"".join(parts)
