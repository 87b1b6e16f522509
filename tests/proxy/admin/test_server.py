"""The server for operators: its port, its access check, and what it says of itself."""

import logging

import grpc
import pytest
from tests.proxy.admin.conftest import Operator, resource
from tests.proxy.conftest import Aborted, User, consumer_settings, producer_settings

from roquet import __version__
from roquet.model.access import Resource
from roquet.model.errors import ConfigError
from roquet.proxy.admin.server import NAME
from roquet.proxy.config import ProxyConfig
from roquet.proxy.protos import admin_pb2 as admin
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.proxy import Proxy
from roquet.proxy.server import ProxyServer
from roquet.rules.proxy.status import ProxyRefusal, StatusCode


async def test_clients_are_counted(proxy: Proxy, operator: Operator) -> None:
    async with (
        User(proxy, "a").telemetry(consumer_settings()),
        User(proxy, "b").telemetry(consumer_settings("other")),
        User(proxy, "c").telemetry(producer_settings("NORM")),
    ):
        request = admin.GetProxyRuntimeStatsRequest()
        stats = await operator.ok("GetProxyRuntimeStats", request)
    assert (stats.connections, stats.producers, stats.consumers) == (3, 1, 2)
    assert stats.version == __version__
    assert "@roquet-proxy#" in stats.proxy_name


async def test_the_level_of_the_log_is_changed(operator: Operator) -> None:
    before = logging.getLogger("roquet").level
    try:
        request = admin.ChangeLogLevelRequest(level=admin.ChangeLogLevelRequest.TRACE)
        assert (await operator("ChangeLogLevel", request)).remark == "the level is DEBUG"
        assert logging.getLogger("roquet").level == logging.DEBUG
    finally:
        logging.getLogger("roquet").setLevel(before)


async def test_a_level_that_there_is_not_is_refused(operator: Operator) -> None:
    odd = admin.ChangeLogLevelRequest.FromString(b"\x08\x63")
    with pytest.raises(Aborted, match="there is no level 99"):
        await operator("ChangeLogLevel", odd)


async def test_a_request_is_refused_without_the_right_that_it_needs(operator: Operator) -> None:
    asked: list[tuple[Resource, str]] = []

    def check(metadata: object, need: object, address: str) -> None:
        asked.append((need.resource, address))  # type: ignore[attr-defined]
        raise ProxyRefusal(StatusCode.UNAUTHORIZED, "the request is not signed")

    operator.server.check = check
    answer = await operator("GetTopicRoute", admin.GetTopicRouteRequest(topic=resource("NORM")))
    assert answer.status.code == pb.UNAUTHORIZED
    assert [(str(need), address) for need, address in asked] == [
        ("Cluster:proxy.admin.route", "10.0.0.7:4711")
    ]
    with pytest.raises(Aborted, match="not signed"):  # its answer has no status
        await operator("ChangeLogLevel", admin.ChangeLogLevelRequest())


async def test_a_fault_of_ours_is_an_answer_as_well(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.proxy.admin.server.NEEDS", {})
    operator.server.check = lambda *_: None
    answer = await operator("GetProxyRuntimeStats", admin.GetProxyRuntimeStatsRequest())
    assert answer.status.code == pb.INTERNAL_SERVER_ERROR
    assert answer.status.message == "KeyError: 'GetProxyRuntimeStats'"


async def test_other_hosts_are_not_served_without_access_control() -> None:
    config = ProxyConfig(port=0, host="127.0.0.1", admin_port=0, admin_host="0.0.0.0")
    with pytest.raises(ConfigError, match=r"admin_host: 0\.0\.0\.0 is open to others"):
        await ProxyServer("127.0.0.1:9", config).start()


@pytest.mark.virtual_time(False)
async def test_operators_have_a_port_of_their_own() -> None:
    config = ProxyConfig(port=0, host="127.0.0.1", admin_port=0)
    async with (
        ProxyServer("127.0.0.1:9", config) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.admin_port}") as channel,
        grpc.aio.insecure_channel(server.address) as clients_channel,
    ):
        for one, is_served in ((channel, True), (clients_channel, False)):
            ask = one.unary_unary(
                f"/{NAME}/GetProxyRuntimeStats",
                request_serializer=admin.GetProxyRuntimeStatsRequest.SerializeToString,
                response_deserializer=admin.GetProxyRuntimeStatsResponse.FromString,
            )
            if is_served:
                assert (await ask(admin.GetProxyRuntimeStatsRequest())).status.code == pb.OK
                continue
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await ask(admin.GetProxyRuntimeStatsRequest())
            assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
        taken = ProxyConfig(port=0, host="127.0.0.1", admin_port=server.admin_port)
        with pytest.raises(ConfigError, match=r"admin_port: .* cannot be used"):
            await ProxyServer("127.0.0.1:9", taken).start()
