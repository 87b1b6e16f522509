"""The server: requests by gRPC itself, over a socket."""

import asyncio
from typing import Any

import grpc
import pytest
from tests.proxy.conftest import producer_settings

from roquet.client import Message, Producer
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.model.errors import ConfigError
from roquet.proxy.config import ProxyConfig
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.server import STOP_S, ProxyServer
from roquet.proxy.service import NAME
from roquet.testing.cluster import cluster

pytestmark = pytest.mark.virtual_time(False)

METADATA = (("x-mq-client-id", "user"),)


async def test_a_message_is_sent_received_and_acknowledged_by_grpc() -> None:
    config = ProxyConfig(port=0, host="127.0.0.1")
    async with cluster() as running, ProxyServer(running.namesrv_addr, config) as server:
        async with Producer(running.namesrv_addr) as producer:
            await producer.send(Message("NORM", b"first"))
        async with grpc.aio.insecure_channel(server.address) as channel:
            send = channel.unary_unary(
                f"/{NAME}/SendMessage",
                request_serializer=service.SendMessageRequest.SerializeToString,
                response_deserializer=service.SendMessageResponse.FromString,
            )
            request = service.SendMessageRequest(messages=[_message(b"hello")])
            assert (await send(request, metadata=METADATA)).status.code == pb.OK
            refused = await send(request)
            assert refused.status.code == pb.CLIENT_ID_REQUIRED


async def test_telemetry_lasts_as_long_as_its_stream_and_refusals_end_it() -> None:
    config = ProxyConfig(port=0, host="127.0.0.1")
    async with (
        cluster() as running,
        ProxyServer(running.namesrv_addr, config) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        telemetry = channel.stream_stream(
            f"/{NAME}/Telemetry",
            request_serializer=service.TelemetryCommand.SerializeToString,
            response_deserializer=service.TelemetryCommand.FromString,
        )
        stream = telemetry(metadata=METADATA)
        await stream.write(service.TelemetryCommand(settings=producer_settings("NORM")))
        answer = await stream.read()
        assert isinstance(answer, service.TelemetryCommand)
        assert answer.status.code == pb.OK
        await stream.write(service.TelemetryCommand(settings=pb.Settings()))
        with pytest.raises(grpc.aio.AioRpcError, match="neither what the client publishes"):
            await stream.read()


async def test_a_client_that_breaks_its_stream_off_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = ProxyConfig(port=0, host="127.0.0.1")
    async with cluster() as running, ProxyServer(running.namesrv_addr, config) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            telemetry = channel.stream_stream(
                f"/{NAME}/Telemetry",
                request_serializer=service.TelemetryCommand.SerializeToString,
                response_deserializer=service.TelemetryCommand.FromString,
            )
            stream = telemetry(metadata=METADATA)
            await stream.write(service.TelemetryCommand(settings=producer_settings("NORM")))
            await stream.read()
            stream.cancel()
        await asyncio.sleep(0.5)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_stop_does_not_wait_for_streams_that_clients_hold_open() -> None:
    config = ProxyConfig(port=0, host="127.0.0.1")
    async with cluster() as running:
        server = ProxyServer(running.namesrv_addr, config)
        await server.start()
        async with grpc.aio.insecure_channel(server.address) as channel:
            telemetry = channel.stream_stream(
                f"/{NAME}/Telemetry",
                request_serializer=service.TelemetryCommand.SerializeToString,
                response_deserializer=service.TelemetryCommand.FromString,
            )
            stream = telemetry(metadata=METADATA)
            await stream.write(service.TelemetryCommand(settings=producer_settings("NORM")))
            await stream.read()
            async with asyncio.timeout(STOP_S - 1):
                await server.close()


async def test_a_port_that_is_taken_is_named() -> None:
    async with cluster() as running:
        config = ProxyConfig(port=0, host="127.0.0.1")
        async with ProxyServer(running.namesrv_addr, config) as server:
            taken = ProxyConfig(port=server.port, host="127.0.0.1")
            with pytest.raises(ConfigError, match="choose another one"):
                await ProxyServer(running.namesrv_addr, taken).start()


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
PING = b"\0\0\x08\6\0\0\0\0\0" + bytes(8)
GO_AWAY = 7


async def goodbye(port: int, said: bytes) -> bytes:
    """The reason by which a connection that begins like this is ended."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(PREFACE + said)
    try:
        async with asyncio.timeout(10):
            while True:
                head = await reader.readexactly(9)
                content = await reader.readexactly(int.from_bytes(head[:3]))
                if head[3] == GO_AWAY:
                    return content
    finally:
        writer.close()


@pytest.mark.parametrize("self_signed", [True, False])
async def test_a_flood_of_pings_ends_its_connection(self_signed: bool) -> None:
    config = ProxyConfig(port=0, host="127.0.0.1", self_signed=self_signed)
    async with ProxyServer("127.0.0.1:9", config) as server:
        assert b"too_many_pings" in await goodbye(server.port, PING * 100)


async def test_headers_have_a_limit_and_the_connection_stays() -> None:
    config = ProxyConfig(port=0, host="127.0.0.1")
    async with (
        ProxyServer("127.0.0.1:9", config) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        beat = heartbeat(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await beat(service.HeartbeatRequest(), metadata=(("x-mq-client-id", "c" * 100_000),))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        answer = await beat(service.HeartbeatRequest(), metadata=METADATA)
        assert answer.status.code == pb.UNRECOGNIZED_CLIENT_TYPE


async def test_a_connection_ends_at_its_age_and_clients_come_back() -> None:
    config = ProxyConfig(port=0, host="127.0.0.1", connection_age_ms=1_000)
    async with ProxyServer("127.0.0.1:9", config) as server:
        assert b"max_age" in await goodbye(server.port, b"")
        async with grpc.aio.insecure_channel(server.address) as channel:
            answer = await heartbeat(channel)(service.HeartbeatRequest(), metadata=METADATA)
            assert answer.status.code == pb.UNRECOGNIZED_CLIENT_TYPE


async def test_streams_that_bring_nothing_harm_nobody() -> None:
    config = ProxyConfig(port=0, host="127.0.0.1")
    async with (
        ProxyServer("127.0.0.1:9", config) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        telemetry = channel.stream_stream(
            f"/{NAME}/Telemetry",
            request_serializer=service.TelemetryCommand.SerializeToString,
            response_deserializer=service.TelemetryCommand.FromString,
        )
        idle = [telemetry(metadata=(("x-mq-client-id", f"c{n}"),)) for n in range(200)]
        async with asyncio.timeout(5):
            answer = await heartbeat(channel)(service.HeartbeatRequest(), metadata=METADATA)
        assert answer.status.code == pb.UNRECOGNIZED_CLIENT_TYPE
        for stream in idle:
            stream.cancel()


def heartbeat(channel: grpc.aio.Channel) -> Any:
    return channel.unary_unary(
        f"/{NAME}/Heartbeat",
        request_serializer=service.HeartbeatRequest.SerializeToString,
        response_deserializer=service.HeartbeatResponse.FromString,
    )


async def test_metrics_and_health_have_a_page() -> None:
    config = ProxyConfig(
        port=0, host="127.0.0.1", metrics_exporter=MetricsExporterType.PROM, metrics_port=0
    )
    async with cluster() as running, ProxyServer(running.namesrv_addr, config) as server:
        for _ in range(200):
            if (ready := await fetched(server.metrics_port, "/readyz")).endswith(b"\r\nready\n"):
                break
            await asyncio.sleep(0.02)
        assert b"200 OK" in ready
        page = (await fetched(server.metrics_port, "/metrics")).decode()
        node = f'node_id="127.0.0.1:{server.port}",node_type="proxy"'
        assert f'rocketmq_proxy_up{{{node},proxy_mode="cluster"}} 1.0' in page
        assert f'roquet_opened_connections_total{{kind="tls",{node}}} 0.0' in page
    async with ProxyServer("127.0.0.1:9", config) as server:
        assert b" 503 " in await fetched(server.metrics_port, "/readyz")


async def fetched(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


def _message(body: bytes) -> pb.Message:
    system = pb.SystemProperties(message_id="ID", message_type="NORMAL")
    return pb.Message(topic=pb.Resource(name="NORM"), body=body, system_properties=system)
