from typing import Any

from tests.metrics.prometheus_text import parsed

from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.address import routable_address
from roquet.observe.page_client import read_page

PROM: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 0,
    "metrics_exporter": MetricsExporterType.PROM,
    "metrics_port": 0,
}


async def test_a_name_server_shows_its_requests_and_brokers() -> None:
    async with NameServer(NameServerConfig(**PROM)) as server:
        page = parsed(
            await read_page(f"127.0.0.1:{server.metrics_port}", "/metrics", timeout_ms=5_000)
        )
    assert page.one("roquet_brokers", node_type="namesrv") == 0
    assert page.one("roquet_broker_names") == 0
    assert page.one("roquet_connections") == 0
    assert not [name for name in page.types if name.startswith("rocketmq_")]


async def test_a_name_server_on_all_interfaces_is_named_by_its_address() -> None:
    config = {**PROM, "host": "0.0.0.0", "metrics_host": "127.0.0.1", "port": 0}
    async with NameServer(NameServerConfig(**config)) as server:
        page = parsed(
            await read_page(f"127.0.0.1:{server.metrics_port}", "/metrics", timeout_ms=5_000)
        )
    assert page.one("roquet_brokers", node_id=f"{routable_address()}:0") == 0


async def test_a_name_server_shows_nothing_unless_it_is_told_to() -> None:
    async with NameServer(NameServerConfig(host="127.0.0.1", port=0)) as server:
        assert server.metrics_port == 0
