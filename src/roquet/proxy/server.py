"""ProxyServer: a gRPC server for a proxy, from start to stop."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final, Self

import grpc

from roquet.log_records import logger
from roquet.model.errors import ConfigError
from roquet.proxy.config import ProxyConfig
from roquet.proxy.proxy import Proxy
from roquet.proxy.service import NAME

log = logger(__name__)

FRAME_SIZE_MAX: Final = 130 * 1024 * 1024
"""Bytes of one request, as the genuine proxy takes them."""

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
        self.port = 0
        """The port, once the proxy is started."""
        self.admin_port = 0
        """The port for operators; 0: there is none."""
        self._admin = AsyncExitStack()

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self._config.host}:{self.port}"

    async def start(self) -> None:
        """Open the port; ConfigError when it is taken. The cluster need not be reachable yet."""
        options = [
            ("grpc.max_receive_message_length", FRAME_SIZE_MAX),
            ("grpc.max_send_message_length", FRAME_SIZE_MAX),
            ("grpc.so_reuseport", 0),
        ]
        self._server = grpc.aio.server(options=options)
        handlers = grpc.method_handlers_generic_handler(NAME, dict(self._proxy.methods))
        self._server.add_generic_rpc_handlers((handlers,))
        wanted = f"{self._config.host}:{self._config.port}"
        try:
            self.port = self._server.add_insecure_port(wanted)
        except RuntimeError as error:
            raise ConfigError(
                f"port: {wanted} cannot be used, another program may have it: choose another one"
            ) from error
        self._proxy.start()
        await self._server.start()
        if self._config.admin_port is not None:
            try:
                self.admin_port = (await self._admin.enter_async_context(self._proxy.admin())).port
            except ConfigError:
                await self.close()
                raise
        log.info("RocketMQ 5's clients are served at %s", self.address)

    async def close(self) -> None:
        """Stop: clients are told, requests under way end, what is not acknowledged comes again."""
        await self._admin.aclose()
        self._proxy.drain()
        await self._server.stop(STOP_S)
        await self._proxy.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
