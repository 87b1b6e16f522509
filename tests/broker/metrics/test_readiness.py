from typing import Any

import pytest

from roquet.broker.app import BrokerServer
from roquet.broker.metrics.readiness import unready_reasons
from roquet.broker.settings.config import BrokerConfig
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.model.errors import StoreError, StoreFull
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.observe.health import READY_PATH
from roquet.observe.page_client import read_response
from roquet.store.store import Store

LOCAL: dict[str, Any] = {"host": "127.0.0.1", "port": 0}


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
