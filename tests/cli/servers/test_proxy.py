"""roquet proxy as users start it."""

from pathlib import Path

import grpc
import pytest
from tests.cli.servers.test_start import failing, started

from roquet.cli import operator_command
from roquet.cli.servers import proxy
from roquet.model.errors import UsageError
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.service import NAME


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


@pytest.mark.slow
def test_a_developers_broker_serves_clients_of_version_5_too(tmp_path: Path) -> None:
    arguments = ("dev", "--memory", "--port", "0", "--namesrv-port", "0", "--host", "127.0.0.1")
    until = "clients at"
    with started(*arguments, "--grpc-port", "0", cwd=tmp_path, until=until) as (printed, _):
        address = printed.split()[-1]
        assert query_route(address, "nowhere").code == pb.TOPIC_NOT_FOUND
        port = address.rpartition(":")[2]
        code, output = failing(*arguments, "--grpc-port", port, cwd=tmp_path)
        assert code == 2
        assert "--grpc-port" in output


@pytest.mark.slow
def test_a_proxy_is_ready_before_its_cluster(tmp_path: Path) -> None:
    arguments = ("proxy", "-n", "127.0.0.1:9", "--port", "0", "--host", "127.0.0.1")
    ports = ("--admin-port", "0")
    with started(*arguments, *ports, cwd=tmp_path, until="proxy ready at") as (printed, _):
        assert "operators at 127.0.0.1:" in printed
        status = query_route(printed.split()[-1], "t")
        assert status.code == pb.PROXY_TIMEOUT
        assert "no name server answered at 127.0.0.1:9" in status.message
