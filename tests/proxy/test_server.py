"""The server: requests by gRPC itself, over a socket."""

import asyncio

import grpc
import pytest
from tests.proxy.conftest import producer_settings

from roquet.client import Message, Producer
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


def _message(body: bytes) -> pb.Message:
    system = pb.SystemProperties(message_id="ID", message_type="NORMAL")
    return pb.Message(topic=pb.Resource(name="NORM"), body=body, system_properties=system)
