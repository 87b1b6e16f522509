import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import FakePeer, MakeSend
from tests.broker.metrics.conftest import Collect
from tests.metrics.prometheus_text import Page, parsed

from roquet.broker.app import BrokerServer
from roquet.broker.broker import Broker
from roquet.broker.counts import ACKNOWLEDGEMENT, CHECKPOINT, DELAY, FIFO, NORMAL, TRANSACTION
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.metrics.broker_exporter import add_replication, add_storage, unready_reasons
from roquet.broker.metrics.traffic import DISK, MODES, PROTOCOL, PUT_OK
from roquet.broker.settings.config import BrokerConfig
from roquet.client.producer import Producer
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.metrics.metric import NodeType
from roquet.metrics.request_counts import RequestResult
from roquet.metrics.rocketmq_metrics import (
    LEFT_OUT,
    PROCESSORS,
    ROCKETMQ_METRICS,
    STORAGE,
    TIMER_BOUNDS_S,
)
from roquet.metrics.roquet_metrics import ROQUET_METRICS
from roquet.model.errors import ConfigError, StoreError, StoreFull
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.observe.health import READY_PATH
from roquet.observe.page_client import read_page, read_response
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.store.store import Store
from roquet.wire.codes import RequestCode, ResponseCode

VECTOR = Path(__file__).parents[2] / "vectors" / "metrics" / "broker-5.5.0.prom"

PROM: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 0,
    "metrics_exporter": MetricsExporterType.PROM,
    "metrics_port": 0,
}

LOCAL: dict[str, Any] = {"host": "127.0.0.1", "port": 0}


@pytest.fixture
async def names() -> AsyncIterator[str]:
    """The address of a name server."""
    async with NameServer(NameServerConfig(host="127.0.0.1", port=0)) as server:
        yield server.address


async def page_of(server: BrokerServer) -> Page:
    return parsed(await read_page(f"127.0.0.1:{server.metrics_port}", "/metrics", timeout_ms=5_000))


async def test_a_send_is_on_the_page(names: str) -> None:
    async with BrokerServer(BrokerConfig(**PROM, name_servers=(names,))) as server:
        async with Producer(names) as producer:
            await producer.send("orders", b"hello")
        page = await page_of(server)
    assert page.one("rocketmq_messages_in_total", topic="orders", message_type="normal") == 1
    sends = page.of("roquet_requests_total", request_code="send_message_v2")
    assert sends == [1]
    node = {"cluster": "DefaultCluster", "node_id": "broker-a", "node_type": "broker"}
    assert page.one("rocketmq_topic_number", otel_scope_name="broker-meter", **node) > 0
    assert page.one("roquet_build_info", **node) == 1


async def test_labels_of_the_settings_are_on_every_value() -> None:
    settings = BrokerConfig(**PROM, metrics_label='zone:a,note:say "hi"')
    async with BrokerServer(settings) as server:
        page = await page_of(server)
    assert page.one("roquet_build_info", zone="a", note='say "hi"') == 1
    assert all({"zone", "note"} <= labels for name in page.types for labels in page.labels(name))


def test_values_of_labels_are_spelled_as_on_the_genuine_page() -> None:
    spelled: dict[str, set[str]] = {
        "request_code": {code.name.lower() for code in RequestCode},
        "response_code": {code.name.lower() for code in ResponseCode},
        "result": {*RequestResult},
        "processor": {*PROCESSORS},
        "message_type": {NORMAL, FIFO, DELAY, TRANSACTION},
        "consume_mode": {*MODES.values()},
        "protocol_type": {PROTOCOL},
        "revive_message_type": {CHECKPOINT, ACKNOWLEDGEMENT},
        "put_status": {PUT_OK},
        "timer_bound_s": {*map(str, TIMER_BOUNDS_S)},
        **{name: {value} for name, value in zip(STORAGE, DISK, strict=True)},
    }
    genuine = parsed(VECTOR.read_text("utf-8"))
    for name, ours in spelled.items():
        theirs = {value.labels[name] for value in genuine.values if name in value.labels}
        assert theirs
        unknown = {"9999"} if name == "request_code" else set()
        assert theirs - ours == unknown, name
    bounds = {value.labels.get("timer_bound_s") for value in genuine.values} - {None}
    assert bounds == spelled["timer_bound_s"]


async def test_everything_on_the_page_is_in_the_table() -> None:
    async with BrokerServer(BrokerConfig(**PROM)) as server:
        page = await page_of(server)
    table = {metric.name: metric for metric in (*ROCKETMQ_METRICS, *ROQUET_METRICS)}
    common = {"cluster", "node_id", "node_type", "otel_scope_name"}
    assert len(page.types) >= 30
    for name, kind in page.types.items():
        assert kind == table[name].type
        assert NodeType.BROKER in table[name].nodes
        assert page.helps[name] == table[name].help
        for labels in page.labels(name):
            assert labels - common <= set(table[name].labels)
    assert page.types.keys() & LEFT_OUT.keys() == set()


async def test_a_broker_shows_nothing_unless_it_is_told_to() -> None:
    async with BrokerServer(BrokerConfig(host="127.0.0.1", port=0)) as server:
        assert server.metrics_port == 0
        assert not server.broker.log.counts.counts_stored


async def test_a_broker_does_not_start_without_the_page_that_it_is_told_to_show() -> None:
    async with BrokerServer(BrokerConfig(**PROM)) as server:
        again = {**PROM, "metrics_port": server.metrics_port}
        with pytest.raises(ConfigError, match="cannot show metrics"):
            async with BrokerServer(BrokerConfig(**again)):
                pass


async def test_a_broker_is_ready_once_a_name_server_knows_of_it() -> None:
    page: dict[str, Any] = {"metrics_exporter": MetricsExporterType.PROM, "metrics_port": 0}
    async with (
        NameServer(NameServerConfig(**LOCAL)) as names,
        BrokerServer(BrokerConfig(**LOCAL, **page, name_servers=(names.address,))) as server,
    ):
        address = f"127.0.0.1:{server.metrics_port}"
        response = await read_response(address, READY_PATH, timeout_ms=5_000)
        assert (response.status, response.text) == (200, "ready\n")
        server.broker.control.registration.has_registered = False
        response = await read_response(address, READY_PATH, timeout_ms=5_000)
        assert (response.status, "not told" in response.text) == (503, True)


async def test_a_broker_that_no_name_server_knows_is_not_ready() -> None:
    config = BrokerConfig(**LOCAL, name_servers=("127.0.0.1:1",))
    async with BrokerServer(config) as server:
        assert unready_reasons(server.broker) == ["no name server can be told of it"]


@pytest.mark.parametrize(("permission", "words"), [(4, ["drained"]), (2, ["closed"]), (6, [])])
async def test_a_broker_without_permissions_is_not_ready(permission: int, words: list[str]) -> None:
    async with BrokerServer(BrokerConfig(**LOCAL, permission=permission)) as server:
        reasons = unready_reasons(server.broker)
    assert [word in reason for word, reason in zip(words, reasons, strict=True)] == [True] * len(
        words
    )


async def test_a_broker_whose_store_refuses_messages_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with BrokerServer(BrokerConfig(**LOCAL)) as server:
        for error, word in ((StoreFull("/path"), "disk"), (StoreError("/path"), "see its log")):
            monkeypatch.setattr(Store, "refusal", error)
            (reason,) = unready_reasons(server.broker)
            assert word in reason
            assert "/path" not in reason


async def test_a_fenced_broker_is_not_ready() -> None:
    config = BrokerConfig(**LOCAL, controller_mode=True, controllers=("127.0.0.1:1",))
    async with BrokerServer(config) as server:
        assert any("does not know its role" in reason for reason in unready_reasons(server.broker))


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
