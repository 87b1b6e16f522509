"""The parts of a broker with a controller."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.broker.replication.controlled_parts import ControlledParts

from roquet.broker.replication.control.failover_context import FailoverSettings
from roquet.broker.replication.controller_mode import FENCED, failover_settings
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import ConfigError, StoreError
from roquet.rules.replication.role_change import LeadGroup
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.wire.replication.epoch_stream import (
    ReplicaHandshake,
    encode_replica_handshake,
    encode_replica_report,
)

pytestmark = pytest.mark.virtual_time

DATA = Path("/data")


async def test_a_broker_begins_fenced_and_shows_what_was_confirmed() -> None:
    parts = ControlledParts()
    assert parts.role == FENCED
    assert parts.mode.view.position == 0
    parts.mode.notice()  # before there is anybody to be asked
    await parts.mode.release()


@pytest.mark.parametrize(
    ("name", "content", "error", "text"),
    [
        ("epochFileCheckpoint", b"what?", StoreError, "epochFileCheckpoint cannot be read"),
        ("brokerIdentity", b"what?", StoreError, "brokerIdentity cannot be read"),
        ("brokerIdentity", b"other#g#1", ConfigError, "cluster other, not to g in c"),
    ],
)
async def test_a_damaged_file_or_the_identity_of_another_cluster_stops_the_start(
    name: str, content: bytes, error: type[Exception], text: str
) -> None:
    files = MemoryFiles()
    files.replace(DATA / name, content)
    with pytest.raises(error, match=text):
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


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("reports", [b"", encode_replica_report(0), encode_replica_report(100)])
async def test_whoever_names_a_living_replica_at_its_masters_port_stops_no_send(
    reports: bytes, is_held: bool
) -> None:
    parts = ControlledParts()
    mode, port = parts.mode, await _lead(parts)
    handshake = encode_replica_handshake(ReplicaHandshake(broker_id=2))
    replica = await _connect(port, handshake + encode_replica_report(0))
    await parts.clock.sleep(100)
    mode.sync_set.adopt(frozenset({1, 2}), 2)
    end = parts.append()
    await parts.clock.sleep(100)
    replica.write(encode_replica_report(end))
    stranger = await _connect(port, handshake + reports)
    await parts.clock.sleep(100)
    if not is_held:
        stranger.close()
    for _ in range(3):
        end = parts.append()
        sent = asyncio.create_task(mode.sync_set.reach(end, parts.clock.monotonic_ms() + 1_000))
        await parts.clock.sleep(100)
        assert not sent.done()
        replica.write(encode_replica_report(end))
        assert await sent
        await parts.clock.sleep(4_000)
    assert mode.sync_set.wanted(15_000) == {1, 2}
    assert len(mode.stream_server) == 1, "a silent one has seconds"
    await mode.stream_server.close()


async def _lead(parts: ControlledParts) -> int:
    """Lead in epoch 1; gives the port for replicas."""
    (await parts.serve()).cancel()
    await parts.transitions.lead(1, LeadGroup(epoch=1, members=frozenset({1}), set_version=1))
    return parts.mode.stream_server.port


async def _connect(port: int, sent: bytes) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    return writer
