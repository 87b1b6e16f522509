from tests.metrics.prometheus_text import parsed

from roquet.controller.app import ControllerServer
from roquet.controller.config import ControllerConfig
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.observe.page_client import read_page


async def test_a_controller_shows_whether_it_leads() -> None:
    config = ControllerConfig(
        host="127.0.0.1",
        port=0,
        metrics_exporter=MetricsExporterType.PROM,
        metrics_port=0,
    )
    async with ControllerServer(config) as server:
        page = parsed(
            await read_page(f"127.0.0.1:{server.metrics_port}", "/metrics", timeout_ms=5_000)
        )
        assert page.one("roquet_controller_is_leader", node_id=server.address) == 1
    assert page.one("roquet_brokers", node_type="controller") == 0


async def test_a_controller_shows_nothing_unless_it_is_told_to() -> None:
    async with ControllerServer(ControllerConfig(host="127.0.0.1", port=0)) as server:
        assert server.metrics_port == 0
