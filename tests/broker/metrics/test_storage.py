import asyncio
from typing import Any

import pytest
from tests.broker.conftest import FakePeer, MakeSend
from tests.broker.metrics.conftest import Collect

from roquet.broker.broker import Broker
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.metrics.storage import add_replication, add_storage
from roquet.rules.replication.acknowledgement import BrokerRole


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"flush_interval": 60_000}


async def test_the_store_is_shown(
    broker: Broker, collect: Collect, peer: FakePeer, message: MakeSend
) -> None:
    assert (await collect(add_storage)).of(
        "rocketmq_storage_message_reserve_time_milliseconds"
    ) == []
    broker.bind(SendHandler.send)(message(), peer)
    await asyncio.sleep(0.02)
    disk = {"storage_medium": "disk", "storage_type": "local"}
    page = await collect(add_storage)
    end = broker.log.store.end_position
    assert page.one("rocketmq_storage_flush_behind_bytes", **disk) == end
    assert page.one("rocketmq_storage_message_reserve_time_milliseconds", **disk) >= 10
    await broker.log.flush.step()
    page = await collect(add_storage)
    assert page.one("rocketmq_storage_flush_behind_bytes", **disk) == 0
    assert page.one("roquet_flush_seconds_count") == 1
    assert page.one("roquet_store_refuses_messages") == 0


async def test_a_store_that_failed_is_shown(broker: Broker, collect: Collect) -> None:
    broker.log.store.fail("the disk is gone")
    assert (await collect(add_storage)).one("roquet_store_refuses_messages") == 1


async def test_a_master_shows_logs_in_sync(broker: Broker, collect: Collect) -> None:
    page = await collect(add_replication)
    assert page.one("roquet_broker_is_master") == 1
    assert page.one("roquet_in_sync_logs") == 1
    assert page.one("roquet_in_sync_logs_needed") == 1
    assert page.of("roquet_replica_connected") == []


class TestReplica:
    @pytest.fixture
    def settings(self) -> dict[str, Any]:
        return {"broker_role": BrokerRole.SLAVE, "broker_id": 1}

    async def test_it_shows_whether_it_has_its_master(
        self, broker: Broker, collect: Collect
    ) -> None:
        page = await collect(add_replication)
        assert page.one("roquet_broker_is_master") == 0
        assert page.one("roquet_replica_connected") == 0
        assert page.of("roquet_in_sync_logs") == []


class TestSyncMaster:
    @pytest.fixture
    def settings(self) -> dict[str, Any]:
        return {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 2}

    async def test_it_shows_how_many_logs_its_senders_wait_for(
        self, broker: Broker, collect: Collect
    ) -> None:
        page = await collect(add_replication)
        assert page.one("roquet_in_sync_logs") == 1
        assert page.one("roquet_in_sync_logs_needed") == 2
