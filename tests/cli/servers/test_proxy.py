"""roquet proxy as users start it."""

from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
from tests.cli.running import must_fail, roquet
from tests.cli.servers.test_start import failing, started

from harness.ports import free_port
from roquet.broker.app import BrokerServer
from roquet.cli import operator_command
from roquet.cli.process import runtime
from roquet.cli.servers import proxy, start
from roquet.model.errors import ConfigError, UsageError
from roquet.net.tls import TlsMode
from roquet.proxy.config import ProxyConfig
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.service import NAME
from roquet.testing.cluster import cluster


def query_route(address: str, topic: str) -> pb.Status:
    """Ask a proxy for a topic's route, by gRPC."""
    with grpc.insecure_channel(address) as channel:
        ask = channel.unary_unary(
            f"/{NAME}/QueryRoute",
            request_serializer=service.QueryRouteRequest.SerializeToString,
            response_deserializer=service.QueryRouteResponse.FromString,
        )
        request = service.QueryRouteRequest(topic=pb.Resource(name=topic))
        answer: service.QueryRouteResponse = ask(
            request, timeout=10, metadata=(("x-mq-client-id", "c"),)
        )
        return answer.status


def test_a_proxy_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator_command, "find_spec", lambda name: None if name == "grpc" else 1)
    with pytest.raises(UsageError, match=r"grpc not installed: pip install 'roquet\[grpc\]'"):
        proxy.check_installed()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ProxyConfig]:
    """Settings of proxies that would have been started."""
    configs: list[ProxyConfig] = []
    monkeypatch.setattr(
        proxy, "serve_until_stopped", lambda _namesrv, config: configs.append(config)
    )
    monkeypatch.setattr(runtime, "run", lambda _: None)
    return configs


def test_options_say_which_connections_are_taken(served: list[ProxyConfig]) -> None:
    roquet("proxy")
    roquet("proxy", "--tls-mode", "disabled")
    roquet("proxy", "--tls-cert", "c.pem", "--tls-key", "k.pem", "--proxy-from", "10.0.0.0/8")
    roquet("proxy", "--tls-cert", "c.pem", "--tls-mode", "enforcing")
    assert [config.is_relayed for config in served] == [True, False, True, True]
    tls = [config.tls.mode for config in served if config.tls is not None]
    assert tls == [TlsMode.PERMISSIVE, TlsMode.ENFORCING]
    assert served[2].proxy_protocol_from == ("10.0.0.0/8",)


def test_options_say_who_may_do_what_and_for_how_long(served: list[ProxyConfig]) -> None:
    roquet("proxy", "--broker-users", "--connection-age", "600", "--metrics", "5557")
    roquet("proxy", "--broker-users", "--no-policies")
    assert served[0].broker_users
    assert [config.checks_policies for config in served] == [True, False]
    assert served[0].connection_age_ms == 600_000
    assert (served[0].metrics_exporter, served[0].metrics_port) == ("PROM", 5557)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--tls-mode", "enforcing"), "give the certificate"),
        (("--tls-key", "k.pem"), "of no use without --tls-cert"),
        (("--broker-users", "--access-file", "f"), "users are in one place"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    served: list[ProxyConfig], arguments: tuple[str, ...], text: str
) -> None:
    must_fail(UsageError, text, "proxy", *arguments)
    assert served == []


async def test_without_the_extra_a_developers_broker_starts_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator_command, "find_spec", lambda _: None)
    async with AsyncExitStack() as servers:
        assert await start.add_proxy(servers, "127.0.0.1:9", BrokerServer(), None) is None


@pytest.mark.virtual_time(False)
async def test_a_developers_broker_starts_though_the_usual_port_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as running, AsyncExitStack() as servers:
        broker, namesrv = running.brokers[0], running.namesrv_addr
        address = await start.add_proxy(servers, namesrv, broker, 0)
        assert address is not None
        port = address.rpartition(":")[2]
        monkeypatch.setattr(start, "GRPC_PORT", int(port))
        said = await start.add_proxy(servers, namesrv, broker, None)
        assert said is not None
        assert said.startswith("not served: --grpc-port: 127.0.0.1:")
        with pytest.raises(ConfigError, match="--grpc-port"):
            await start.add_proxy(servers, namesrv, broker, int(port))


@pytest.mark.slow
def test_a_developers_broker_serves_clients_of_version_5_too(tmp_path: Path) -> None:
    arguments = ("dev", "--memory", "--port", "0", "--namesrv-port", "0", "--host", "127.0.0.1")
    until = "gRPC  "
    with started(*arguments, "--grpc-port", "0", cwd=tmp_path, until=until) as (printed, _):
        address = printed.split()[-1]
        assert query_route(address, "made-by-the-first-message").code == pb.OK
        port = address.rpartition(":")[2]
        code, output = failing(*arguments, "--grpc-port", port, cwd=tmp_path)
        assert code == 2
        assert "--grpc-port" in output


@pytest.mark.slow
def test_a_proxy_is_one_of_the_processes_of_serve(tmp_path: Path) -> None:
    port, namesrv, grpc_port = (str(free_port()) for _ in range(3))
    arguments = ("serve", "--port", port, "--namesrv-port", namesrv, "--host", "127.0.0.1")
    with started(*arguments, "--grpc-port", grpc_port, cwd=tmp_path) as (printed, _):
        assert f"gRPC         127.0.0.1:{grpc_port}\n" in printed
        assert query_route(f"127.0.0.1:{grpc_port}", "nowhere").code == pb.TOPIC_NOT_FOUND


@pytest.mark.slow
def test_a_proxy_is_ready_before_its_cluster(tmp_path: Path) -> None:
    arguments = ("proxy", "-n", "127.0.0.1:9", "--port", "0", "--host", "127.0.0.1")
    ports = ("--admin-port", "0")
    with started(*arguments, *ports, cwd=tmp_path, until="proxy ready at") as (printed, _):
        assert "operators at 127.0.0.1:" in printed
        status = query_route(printed.split()[-1], "t")
        assert status.code == pb.PROXY_TIMEOUT
        assert "no name server answered at 127.0.0.1:9" in status.message
