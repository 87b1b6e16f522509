"""Parts of a broker with a controller, without the rest of it, in virtual time."""

import asyncio
from pathlib import Path
from typing import Any

from tests.broker.replication.conftest import ORIGIN

from roquet.broker.filtering.filter_cache import FilterCache
from roquet.broker.ingest.append import Ingest
from roquet.broker.log.flush import Flush
from roquet.broker.log.long_polling import LongPolling
from roquet.broker.log.message_log import MessageLog
from roquet.broker.replication.control.machine_boot import BootNote
from roquet.broker.replication.controller_mode import ControllerMode
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.store.config import StoreConfig
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.replication.epoch_file import EpochFile
from roquet.store.replication.identity_file import IdentityFile
from roquet.store.store import Draft, Store
from roquet.testing.clock import this_loop


class ControlledParts:
    """A broker that gets its role from a test."""

    def __init__(
        self, files: MemoryFiles | None = None, *, is_log_whole: bool = True, **settings: Any
    ) -> None:
        self.clock = clock = this_loop().clock
        self.files = files or MemoryFiles()
        config = BrokerConfig(
            broker_name="g",
            cluster_name="c",
            controller_mode=True,
            controllers=("127.0.0.1:9878",),
            **settings,
        )
        layout = StoreConfig(log_file_size=4_096, queue_file_entries=1_000)
        self.store = store = Store.open(
            Path("/data"), layout, files=self.files, now_ms=clock.now_ms()
        )
        self.settings = RuntimeSettings(config)
        self.arrivals = LongPolling(clock)
        self.log = MessageLog(
            store=store,
            ingest=Ingest(store, config, clock, ORIGIN, self.arrivals.arrived),
            flush=Flush(store, self.settings, clock),
            arrivals=self.arrivals,
            filters=FilterCache(),
            memory=1 << 30,
        )
        self.note = BootNote(MemoryFiles(), Path("/data"), "boot")
        """Whether the log is noted to be whole."""
        self.note.begin(has_identity=not is_log_whole)
        self.mode = ControllerMode(
            self.log,
            self.settings,
            clock,
            EpochFile(Path("/data/epochFileCheckpoint"), self.files),
            IdentityFile(Path("/data/brokerIdentity"), self.files),
            self.note,
        )
        self.transitions = self.mode.transitions
        server, client = self.mode.stream_server, self.mode.stream_client
        self.mode.role.on_change += [server.follow_role, client.follow_role]
        self.mode.after_cut.append(self.mode.view.cut)
        self.settings.checks.append(self.mode.settings_fault)
        self.settings.subscribe(self.mode.configure)
        self.log.flush.on_flushed.append(self.mode.follow_flush)
        self.arrivals.on_hidden = self.mode.flush_hidden

    @property
    def role(self) -> Any:
        return self.mode.role.current

    def append(self, count: int = 1) -> int:
        """Append messages of 100 bytes; gives where the log ends then."""
        for _ in range(count):
            draft = Draft("orders", 0, b"x" * 3, b"", 0, store_host=bytes(8))
            self.store.append(draft, self.clock.now_ms())
        return self.store.end_position

    async def serve(self) -> "asyncio.Task[None]":
        """Listen for replicas at this host, and follow whom the role names."""
        await self.mode.stream_server.start("127.0.0.1", 0)
        return asyncio.create_task(self.mode.stream_client.serve())
