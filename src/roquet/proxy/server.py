"""ProxyServer: a gRPC server for a proxy, from start to stop."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

import grpc

from roquet.log_records import logger
from roquet.model.errors import ConfigError
from roquet.proxy.config import ProxyConfig
from roquet.proxy.proxy import Proxy
from roquet.proxy.public_port import PublicPort
from roquet.proxy.service import NAME

log = logger(__name__)

FRAME_SIZE_MAX: Final = 130 * 1024 * 1024
"""Bytes of one request, as the genuine proxy takes them."""

OPTIONS: Final = (
    ("grpc.max_receive_message_length", FRAME_SIZE_MAX),
    ("grpc.max_send_message_length", FRAME_SIZE_MAX),
    ("grpc.so_reuseport", 0),
)
"""gRPC's settings of the server."""

STOP_S: Final = 5
"""Time that requests under way have at a stop."""

_DEFAULTS: Final = ProxyConfig()


class ProxyServer:
    """Serves RocketMQ 5's clients in front of a cluster."""

    def __init__(
        self, namesrv: str | Sequence[str] | None = None, config: ProxyConfig = _DEFAULTS
    ) -> None:
        self._config = config
        self._proxy = Proxy(namesrv, config)
        self._running = AsyncExitStack()
        self.port = 0
        """The port, once the proxy is started."""

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self._config.host}:{self.port}"

    async def start(self) -> None:
        """Open the port; ConfigError when it is taken. The cluster need not be reachable yet."""
        async with AsyncExitStack() as running:
            server = grpc.aio.server(options=OPTIONS)
            handlers = grpc.method_handlers_generic_handler(NAME, dict(self._proxy.methods))
            server.add_generic_rpc_handlers((handlers,))
            if self._config.is_relayed:
                directory = running.enter_context(TemporaryDirectory(prefix="roquet-proxy-"))
                public = PublicPort(self._config, Path(directory))
                self._proxy.admission.address_of = public.address_of
                server.add_insecure_port(public.inner)
            else:
                self.port = self._open_port(server)
            self._proxy.start()
            running.push_async_callback(self._proxy.close)
            await server.start()
            running.push_async_callback(server.stop, STOP_S)
            running.callback(self._proxy.drain)
            if self._config.is_relayed:
                self.port = await public.listen()
                running.callback(public.close)
            log.info("RocketMQ 5's clients are served at %s", self.address)
            self._running = running.pop_all()

    def _open_port(self, server: grpc.aio.Server) -> int:
        wanted = f"{self._config.host}:{self._config.port}"
        try:
            return server.add_insecure_port(wanted)
        except RuntimeError as error:
            raise ConfigError(
                f"port: {wanted} cannot be used, another program may have it: choose another one"
            ) from error

    async def close(self) -> None:
        """Stop: clients are told, requests under way end, what is not acknowledged comes again."""
        await self._running.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
