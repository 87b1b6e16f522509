import asyncio
from pathlib import Path

import pytest
from tests.broker.conftest import FakePeer, MakeSend

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.operations.replica_tables import (
    lower_progress,
    metadata_copy,
    prepare_cut,
    take_lead,
)
from roquet.broker.replication.role import Role
from roquet.broker.services.transactions.transactions import GROUP, OP_CODE, OP_PROPERTIES
from roquet.broker.settings.config import BrokerConfig
from roquet.model import names
from roquet.net.pool import ChannelPool
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.store.store import Draft

ALONE = Role(role=BrokerRole.SLAVE, broker_id=1)


async def test_a_replica_keeps_progress_beyond_its_queues_until_it_is_the_master(
    broker: Broker, peer: FakePeer, message: MakeSend, caplog: pytest.LogCaptureFixture
) -> None:
    broker.bind(SendHandler.send)(message(), peer)
    broker.tables.offsets.copy({"orders@ahead": {0: 7}, "orders@within": {0: 1}}, None)
    broker.replication.role.change(ALONE)
    assert broker.tables.offsets.get("ahead", "orders", 0) == 7
    broker.replication.role.current = Role()
    await take_lead(broker, 0)
    offsets = [broker.tables.offsets.get(g, "orders", 0) for g in ("ahead", "within")]
    assert offsets == [1, 1]
    assert "groups were further than 1 queues reach" in caplog.text
    lower_progress(broker)
    assert len(caplog.records) == 1


async def test_a_replica_takes_progress_beyond_a_cut_back_and_leaves_the_rest(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(message(), peer)
    end = broker.log.store.raw.end
    broker.bind(SendHandler.send)(message(), peer)
    offsets = broker.tables.offsets
    offsets.copy(
        {
            "orders@ahead": {0: 2},
            "orders@within": {0: 1},
            "elsewhere@far": {0: 9},
            f"{names.HALF_TOPIC}@{GROUP}": {0: 9},
        },
        None,
    )
    prepare_cut(broker, end)
    assert {key: queues[0] for key, queues in offsets.by_place()} == {
        "orders@ahead": 1,
        "orders@within": 1,
        "elsewhere@far": 9,
        f"{names.HALF_TOPIC}@{GROUP}": 9,
    }
    assert not offsets.unsaved, "nothing tells of the cut after a crash"


async def test_the_tables_of_a_new_master_are_newer_than_those_of_the_one_before(
    broker: Broker,
) -> None:
    topics, groups = broker.tables.topics, broker.tables.groups
    before = (topics.version, groups.version)
    await take_lead(broker, 5)
    for version, former in zip((topics.version, groups.version), before, strict=True):
        assert version.state_version == 5
        assert version.order > former.order
    await take_lead(broker, 0)
    assert broker.tables.topics.version.state_version == 5


async def test_a_new_master_asks_about_half_messages_of_the_one_before(
    broker: Broker, peer: FakePeer, message: MakeSend
) -> None:
    broker.bind(SendHandler.send)(
        message(sys_flag=4, properties="TRAN_MSG\x01true\x02PGROUP\x01pg\x02"), peer
    )
    assert broker.log.store.bounds(names.HALF_TOPIC, 0) == (0, 1)
    broker.tables.offsets.copy({f"{names.HALF_TOPIC}@{GROUP}": {0: 0}}, None)
    await take_lead(broker, 0)
    broker.delivery.transactions.step()
    assert broker.tables.offsets.get(GROUP, names.HALF_TOPIC, 0) == 0, "it has no end yet"


async def test_the_copier_does_nothing_at_a_master(broker: Broker) -> None:
    async with ChannelPool() as pool:
        copy = metadata_copy(broker, pool)
        assert copy.interval_ms() == 1_000
        await copy.step()
        broker.replication.role.change(ALONE)
        assert copy.interval_ms() == 50
        await copy.step()


async def test_a_start_takes_back_progress_of_a_master(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = BrokerConfig(
        host="127.0.0.1", port=0, store_dir=tmp_path, log_file_size=1 << 20,
        queue_file_entries=1_000, index_slots=100, index_entries=1_000,
    )  # fmt: skip
    async with BrokerServer(config) as server:
        server.broker.tables.offsets.copy({"orders@g": {0: 7}}, None)
    async with BrokerServer(config) as server:
        assert server.broker.tables.offsets.get("g", "orders", 0) == 0
    assert "further than 1 queues reach" in caplog.text


def op_messages(broker: Broker, count: int) -> None:
    """Store ends of the first half message, each in a message of its own."""
    for _ in range(count):
        draft = Draft(
            names.OP_HALF_TOPIC, 0, b"0,", OP_PROPERTIES, OP_CODE,
            store_host=broker.log.ingest.store_host,
        )  # fmt: skip
        broker.log.store.append(draft, broker.control.clock.now_ms())


async def test_others_have_their_turn_while_a_new_master_reads_what_was_noted(
    broker: Broker,
) -> None:
    op_messages(broker, 300)
    turns, leading = 0, asyncio.create_task(take_lead(broker, 0))
    while not leading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 5


async def test_others_have_their_turn_while_progress_in_many_queues_is_lowered(
    broker: Broker,
) -> None:
    broker.tables.offsets.copy({f"t{n}@g": dict.fromkeys(range(20), 7) for n in range(20)}, None)
    turns, leading = 0, asyncio.create_task(take_lead(broker, 0))
    while not leading.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 400 / 32
    assert broker.tables.offsets.get("g", "t19", 19) == 0


async def test_a_role_that_is_taken_back_ends_the_lowering_of_progress(broker: Broker) -> None:
    broker.tables.offsets.copy({f"t{n}@g": dict.fromkeys(range(20), 7) for n in range(20)}, None)
    leading = asyncio.create_task(take_lead(broker, 9))
    await asyncio.sleep(0)
    broker.replication.role.change(ALONE)
    await leading
    assert broker.tables.offsets.get("g", "t19", 19) == 7, "a master's progress may be ahead"
    assert broker.tables.topics.version.state_version == 0


async def test_a_role_that_is_taken_back_leaves_the_reading_to_the_next_time(
    broker: Broker,
) -> None:
    op_messages(broker, 300)
    leading = asyncio.create_task(take_lead(broker, 0))
    await asyncio.sleep(0)
    broker.replication.role.change(ALONE)
    await leading
    progress = broker.tables.offsets.get(GROUP, names.OP_HALF_TOPIC, 0)
    broker.delivery.transactions.step()
    assert broker.tables.offsets.get(GROUP, names.OP_HALF_TOPIC, 0) == progress, (
        "ends that were not read yet are not passed over"
    )
