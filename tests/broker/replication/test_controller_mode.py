"""The parts of a broker with a controller."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.broker.replication.controlled_parts import ControlledParts

from roquet.broker.replication.control.failover_context import FailoverSettings
from roquet.broker.replication.controller_mode import FENCED, failover_settings
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import ConfigError, StoreError
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.testing.clock import in_virtual_time

DATA = Path("/data")


@in_virtual_time
async def test_a_broker_begins_fenced_and_shows_what_was_confirmed() -> None:
    parts = ControlledParts()
    assert parts.role == FENCED
    assert parts.mode.view.position == 0
    parts.mode.notice()  # before there is anybody to be asked
    await parts.mode.release()


@in_virtual_time
async def test_a_damaged_epoch_file_stops_the_start() -> None:
    files = MemoryFiles()
    files.replace(DATA / "epochFileCheckpoint", b"what?")
    with pytest.raises(StoreError, match="epochFileCheckpoint cannot be read"):
        ControlledParts(files)


@in_virtual_time
async def test_a_damaged_identity_stops_the_start() -> None:
    files = MemoryFiles()
    files.replace(DATA / "brokerIdentity", b"what?")
    with pytest.raises(StoreError, match="brokerIdentity cannot be read"):
        ControlledParts(files)


@in_virtual_time
async def test_the_identity_of_another_cluster_stops_the_start() -> None:
    files = MemoryFiles()
    files.replace(DATA / "brokerIdentity", b"other#g#1")
    with pytest.raises(ConfigError, match="cluster other, not to g in c"):
        ControlledParts(files)


def test_the_settings_are_those_of_the_broker() -> None:
    config = BrokerConfig(
        controller_mode=True,
        controllers=("a:1",),
        controller_poll_interval=1,
        broker_heartbeat_interval=2,
        controller_heartbeat_timeout=3,
        election_priority=4,
        all_ack_in_sync_set=False,
        in_sync_replicas=2,
        async_learner=True,
    )
    assert failover_settings(config) == FailoverSettings(
        poll_ms=1,
        heartbeat_ms=2,
        heartbeat_timeout_ms=3,
        priority=4,
        waits_for_all=False,
        logs_needed=2,
        is_learner=True,
    )
    assert failover_settings(replace(config, all_ack_in_sync_set=True)).logs_needed is None
