"""The service: gRPC's requests to the proxy, each passed on to its handler.

An error of a request becomes the status in its answer; gRPC's own errors end only streams.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, TypeAlias

import grpc

from roquet.log_records import logger
from roquet.model.errors import RoquetError
from roquet.proxy.answers import OK, code_of, status_of
from roquet.proxy.caller import Caller, caller_of
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as messages
from roquet.proxy.request_bytes import check_read, reader
from roquet.rules.proxy.status import StatusCode

log = logger(__name__)

NAME: Final = "apache.rocketmq.v2.MessagingService"

Handler = Callable[[Any, Caller], Awaitable[Any]]
StreamHandler = Callable[[Any, Caller], AsyncGenerator[Any, None]]
Context: TypeAlias = Any  # grpc.aio's, which has no types
RpcMethod: TypeAlias = Any
"""A method in gRPC's form."""


def unary(name: str, handler: Handler) -> RpcMethod:
    """A handler that gives one answer, in the form of gRPC."""
    request, response = _types(name)

    async def answer(message: Any, context: Context) -> Any:
        try:
            found = await handler(check_read(message), _caller(context))
        except RoquetError as error:
            return response(status=status_of(error))
        except Exception as error:
            log.exception("%s failed", name)
            return response(status=_fault(error))
        if not found.HasField("status"):
            found.status.CopyFrom(OK)
        return found

    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=reader(request),
        response_serializer=response.SerializeToString,
    )


def stream(name: str, handler: StreamHandler) -> RpcMethod:
    """A handler whose answer is a stream of parts, one of them a status, in the form of gRPC."""
    request, response = _types(name)

    async def answer(message: Any, context: Context) -> AsyncIterator[Any]:
        try:
            async with aclosing(handler(check_read(message), _caller(context))) as parts:
                async for part in parts:
                    yield part
        except RoquetError as error:
            yield response(status=status_of(error))
        except Exception as error:
            log.exception("%s failed", name)
            yield response(status=_fault(error))

    return grpc.unary_stream_rpc_method_handler(
        answer,
        request_deserializer=reader(request),
        response_serializer=response.SerializeToString,
    )


def telemetry(handler: StreamHandler) -> RpcMethod:
    """Telemetry in the form of gRPC: it ends with an error of gRPC's when settings are refused."""
    command = messages.TelemetryCommand

    async def read(requests: Any) -> AsyncIterator[Any]:
        async for request in requests:
            yield check_read(request)

    async def answer(requests: Any, context: Context) -> AsyncIterator[Any]:
        try:
            caller = _caller(context)
        except RoquetError as error:
            yield command(status=status_of(error))
            return
        try:
            async with aclosing(handler(read(requests), caller)) as parts:
                async for part in parts:
                    yield part
        except RoquetError as error:
            code = code_of(error)
            is_clients = code < StatusCode.INTERNAL_SERVER_ERROR
            kind = grpc.StatusCode.INVALID_ARGUMENT if is_clients else grpc.StatusCode.INTERNAL
            await context.abort(kind, f"the settings are refused: {error} ({code.name})")
        except Exception as error:
            log.exception("Telemetry failed")
            await context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")

    return grpc.stream_stream_rpc_method_handler(
        answer,
        request_deserializer=reader(command),
        response_serializer=command.SerializeToString,
    )


def _caller(context: Context) -> Caller:
    return caller_of(context.invocation_metadata() or (), context.peer(), context.time_remaining())


def _types(name: str) -> tuple[Any, Any]:
    return getattr(messages, f"{name}Request"), getattr(messages, f"{name}Response")


def _fault(error: Exception) -> pb.Status:
    code = StatusCode.INTERNAL_SERVER_ERROR
    return pb.Status(code=code.name, message=f"{type(error).__name__}: {error}")
