"""The service: gRPC's requests to the proxy, each passed on to its handler.

An error of a request becomes the status in its answer; gRPC's own errors end only streams.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, TypeAlias

import grpc

from roquet.log_records import logger
from roquet.metrics.counts import LabeledHistograms
from roquet.metrics.roquet_metrics import SHORT_S
from roquet.model.errors import RoquetError
from roquet.net.clock import Clock
from roquet.proxy.admission import ClientAdmission, Context
from roquet.proxy.answers import OK, code_of, status_of
from roquet.proxy.caller import Caller
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as messages
from roquet.proxy.request_bytes import check_read, reader
from roquet.rules.proxy.status import StatusCode

log = logger(__name__)

NAME: Final = "apache.rocketmq.v2.MessagingService"

TELEMETRY: Final = "Telemetry"
"""The method whose requests are a stream."""

STREAM_STATUSES: Final = (
    StatusCode.UNAUTHORIZED,
    StatusCode.FORBIDDEN,
    StatusCode.CLIENT_ID_REQUIRED,
)
"""Codes with which Telemetry ends in good order, as at Apache's proxy: by no error of gRPC's."""

Handler = Callable[[Any, Caller], Awaitable[Any]]
StreamHandler = Callable[[Any, Caller], AsyncGenerator[Any, None]]
RpcMethod: TypeAlias = Any
"""A method in gRPC's form."""


class RpcMethods:
    """Makes methods in gRPC's form from handlers, behind an admission."""

    def __init__(self, admission: ClientAdmission, clock: Clock) -> None:
        self._admission = admission
        self._now_ms = clock.monotonic_ms
        self.times = LabeledHistograms(SHORT_S, 2)
        """Seconds of requests by method and code."""

    def _note(self, method: str, status: pb.Status, begun_ms: int) -> None:
        elapsed_s = (self._now_ms() - begun_ms) / 1_000
        self.times.observe(method, pb.Code.Name(status.code), value=elapsed_s)

    def unary(self, name: str, handler: Handler) -> RpcMethod:
        """A handler that gives one answer, in the form of gRPC."""
        request, response = _types(name)
        admit = self._admission.admit

        async def answer(message: Any, context: Context) -> Any:
            begun_ms = self._now_ms()
            try:
                caller = admit(context, name, check_read(message))
                found = await handler(message, caller)
                if not found.HasField("status"):
                    found.status.CopyFrom(OK)
            except RoquetError as error:
                found = response(status=status_of(error))
            except Exception as error:
                log.exception("%s failed", name)
                found = response(status=_fault(error))
            self._note(name, found.status, begun_ms)
            return found

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=reader(request),
            response_serializer=response.SerializeToString,
        )

    def stream(self, name: str, handler: StreamHandler) -> RpcMethod:
        """A handler whose answer is a stream of parts, one of them a status."""
        request, response = _types(name)
        admit = self._admission.admit

        async def answer(message: Any, context: Context) -> AsyncIterator[Any]:
            begun_ms, status = self._now_ms(), OK
            try:
                caller = admit(context, name, check_read(message))
                async with aclosing(handler(message, caller)) as parts:
                    async for part in parts:
                        if part.HasField("status"):
                            status = part.status
                            admit(context, name, message)  # it may have waited for long
                        yield part
            except RoquetError as error:
                status = status_of(error)
                yield response(status=status)
            except Exception as error:
                log.exception("%s failed", name)
                status = _fault(error)
                yield response(status=status)
            self._note(name, status, begun_ms)

        return grpc.unary_stream_rpc_method_handler(
            answer,
            request_deserializer=reader(request),
            response_serializer=response.SerializeToString,
        )

    async def _admitted(self, requests: Any, context: Context, latest: Any) -> AsyncIterator[Any]:
        """The admitted requests of a stream; `latest` gets the settings that count."""
        async for request in requests:
            self._admission.admit(context, TELEMETRY, check_read(request))
            if request.HasField("settings"):
                latest.settings.CopyFrom(request.settings)
            yield request

    def telemetry(self, handler: StreamHandler) -> RpcMethod:
        """Telemetry, which ends with an error of gRPC's when settings are refused."""
        command, admit = messages.TelemetryCommand, self._admission.admit

        async def answer(requests: Any, context: Context) -> AsyncIterator[Any]:
            latest = command()
            try:
                caller = admit(context, TELEMETRY)
                async with aclosing(
                    handler(self._admitted(requests, context, latest), caller)
                ) as parts:
                    async for part in parts:
                        admit(context, TELEMETRY, latest)  # a command may hold a message
                        yield part
            except RoquetError as error:
                if code_of(error) in STREAM_STATUSES:
                    yield command(status=status_of(error))
                else:
                    await context.abort(*_settings_refusal(error))
            except Exception as error:
                log.exception("Telemetry failed")
                await context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")

        return grpc.stream_stream_rpc_method_handler(
            answer,
            request_deserializer=reader(command),
            response_serializer=command.SerializeToString,
        )


def _settings_refusal(error: RoquetError) -> tuple[grpc.StatusCode, str]:
    code = code_of(error)
    is_clients = code < StatusCode.INTERNAL_SERVER_ERROR
    kind = grpc.StatusCode.INVALID_ARGUMENT if is_clients else grpc.StatusCode.INTERNAL
    return kind, f"the settings are refused: {error} ({code.name})"


def _types(name: str) -> tuple[Any, Any]:
    return getattr(messages, f"{name}Request"), getattr(messages, f"{name}Response")


def _fault(error: Exception) -> pb.Status:
    code = StatusCode.INTERNAL_SERVER_ERROR
    return pb.Status(code=code.name, message=f"{type(error).__name__}: {error}")
