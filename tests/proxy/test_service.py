"""gRPC's form of handlers: errors become statuses."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from tests.proxy.conftest import Aborted, Context

from roquet.net.clock import SYSTEM_CLOCK
from roquet.proxy.admission import Admission
from roquet.proxy.caller import Caller
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.rpc_meter import RpcMeter
from roquet.proxy.service import RpcMethods

METHODS = RpcMethods(Admission(), RpcMeter(SYSTEM_CLOCK))
METADATA = {"x-mq-client-id": "c"}


async def broken(_request: Any, _caller: Caller) -> Any:
    raise ZeroDivisionError("a fault of our own")


async def broken_stream(_request: Any, _caller: Caller) -> AsyncGenerator[Any, None]:
    yield service.ReceiveMessageResponse(status=pb.Status(code=pb.OK))
    raise ZeroDivisionError("a fault of our own")


async def test_an_answer_without_a_status_is_ok() -> None:
    async def handler(_request: Any, _caller: Caller) -> Any:
        return service.HeartbeatResponse()

    method = METHODS.unary("Heartbeat", handler)
    answer = await method.unary_unary(service.HeartbeatRequest(), Context(METADATA, None))
    assert answer.status == pb.Status(code=pb.OK, message="OK")


async def test_a_fault_of_our_own_is_an_answer_and_a_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    method = METHODS.unary("Heartbeat", broken)
    answer = await method.unary_unary(service.HeartbeatRequest(), Context(METADATA, None))
    assert answer.status.code == pb.INTERNAL_SERVER_ERROR
    assert "ZeroDivisionError" in caplog.text
    parts = METHODS.stream("ReceiveMessage", broken_stream).unary_stream(
        None, Context(METADATA, None)
    )
    codes = [part.status.code async for part in parts]
    assert codes == [pb.OK, pb.INTERNAL_SERVER_ERROR]


async def test_a_stream_without_a_client_id_is_told_so_and_ends() -> None:
    parts = METHODS.telemetry(broken_stream).stream_stream(None, Context({}, None))
    assert [part.status.code async for part in parts] == [pb.CLIENT_ID_REQUIRED]


async def test_a_fault_of_our_own_ends_a_telemetry_stream_and_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = METHODS.telemetry(broken_stream).stream_stream(None, Context(METADATA, None))
    with pytest.raises(Aborted, match="ZeroDivisionError"):
        [part async for part in parts]
    assert "ZeroDivisionError" in caplog.text
