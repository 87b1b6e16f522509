import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.metrics.prometheus_text import parsed
from tests.namesrv.conftest import of_broker
from tests.raising import raises

from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.model.errors import CallRefused, ConfigError, ConnectionLost
from roquet.model.route import TopicRoute
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.address import routable_address
from roquet.net.channel import Channel, Security
from roquet.net.tls import ServerTls, Tls
from roquet.observe.page_client import read_page
from roquet.wire.calls.heartbeat import Heartbeat
from roquet.wire.calls.route import GetKV, GetRoute, PutKV, RegisterBroker
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

Registers = Callable[..., RegisterBroker]
ANY_PORT = NameServerConfig(host="127.0.0.1", port=0)


async def emptied(server: NameServer) -> None:
    """Return when the name server has forgotten every broker."""
    for _ in range(1000):
        if not server.state.brokers.registrations:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("a broker is still known after five seconds")


async def test_a_broker_registers_and_a_client_finds_its_topic() -> None:
    async with (
        NameServer(ANY_PORT) as server,
        await Channel.connect("127.0.0.1", server.port) as broker,
        await Channel.connect("127.0.0.1", server.port) as client,
    ):
        await broker.call(of_broker("a", orders=4, x=1))
        reply = await client.call(GetRoute(topic="orders"))
        route = codec.loads(reply.body, TopicRoute)
        assert [q.broker_name for q in route.queue_datas] == ["a"]


async def test_a_broker_whose_connection_breaks_has_no_route_any_more() -> None:
    async with (
        NameServer(ANY_PORT) as server,
        await Channel.connect("127.0.0.1", server.port) as client,
    ):
        async with await Channel.connect("127.0.0.1", server.port) as broker:
            await broker.call(of_broker("a", orders=4, x=1))
        await emptied(server)
        with raises(CallRefused, code=ResponseCode.TOPIC_NOT_EXIST):
            await client.call(GetRoute(topic="orders"))


async def test_requests_for_brokers_are_refused_as_unknown() -> None:
    async with (
        NameServer(ANY_PORT) as server,
        await Channel.connect("127.0.0.1", server.port) as client,
    ):
        with pytest.raises(CallRefused, match=r"request type 34 not supported"):
            await client.call(Heartbeat())


async def test_values_are_there_again_after_a_restart(tmp_path: Path) -> None:
    config = NameServerConfig(host="127.0.0.1", port=0, directory=tmp_path)
    async with (
        NameServer(config) as server,
        await Channel.connect("127.0.0.1", server.port) as client,
    ):
        await client.call(PutKV(namespace="n", key="k", value="v"))
    async with (
        NameServer(config) as server,
        await Channel.connect("127.0.0.1", server.port) as client,
    ):
        assert (await client.call(GetKV(namespace="n", key="k"))).value == "v"


async def test_the_address_is_one_that_this_machine_can_dial() -> None:
    async with NameServer(NameServerConfig(port=0)) as server:
        assert server.address == f"127.0.0.1:{server.port}"


async def test_a_port_in_use_is_named() -> None:
    async with NameServer(ANY_PORT) as first:
        second = NameServerConfig(host="127.0.0.1", port=first.port)
        with pytest.raises(ConfigError, match=f"port {first.port} is in use"):
            async with NameServer(second):
                pass


def test_before_the_start_there_is_no_port() -> None:
    with pytest.raises(RuntimeError, match="not been started"):
        _ = NameServer(ANY_PORT).port


async def test_silent_brokers_are_removed_while_it_runs() -> None:
    config = NameServerConfig(host="127.0.0.1", port=0, scan_ms=5)
    async with (
        NameServer(config) as server,
        await Channel.connect("127.0.0.1", server.port) as broker,
    ):
        await broker.call(of_broker("a", orders=4, x=1))
        server.state.brokers.spoke(("a", 0), 0, 1)
        await emptied(server)


async def test_a_name_server_with_a_certificate_takes_tls_alone() -> None:
    files = Path(__file__).parents[1] / "certificates"
    tls = ServerTls(cert=files / "server.pem", key=files / "server.key")
    config = msgspec.structs.replace(ANY_PORT, tls=tls)
    security = Security(context=Tls(ca=files / "ca.pem").context())
    put = PutKV(namespace="n", key="k", value="v")
    async with NameServer(config) as server:
        async with await Channel.connect("127.0.0.1", server.port, security=security) as channel:
            await channel.call(put)
        async with await Channel.connect("127.0.0.1", server.port) as plain:
            with pytest.raises(ConnectionLost):
                await plain.call(put)


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
