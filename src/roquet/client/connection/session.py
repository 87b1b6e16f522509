"""Session: the parts that every client has: identity, connections, routes and heartbeats."""

import os
from collections.abc import Sequence

from roquet.client.config import ClientConfig, resolve_name_servers
from roquet.client.connection.background import BackgroundTasks
from roquet.client.connection.heartbeats import HeartbeatSource, Membership
from roquet.client.connection.identity import ClientIdentity
from roquet.client.connection.routes import NameServers, Routes
from roquet.client.connection.security import connection_security
from roquet.model.errors import UsageError
from roquet.model.namespaces import check_namespace
from roquet.net.pool import ChannelPool
from roquet.net.router import Router


class Session:
    """One client's shared parts, from `start` to `close`."""

    pool: ChannelPool
    routes: Routes
    membership: Membership

    def __init__(self, namesrv: str | Sequence[str] | None, config: ClientConfig) -> None:
        check_namespace(config.namespace or "")
        self.addresses = resolve_name_servers(namesrv, os.environ)
        self.config = config
        self.security = connection_security(config, os.environ)
        self.identity = ClientIdentity(config)
        self.router = Router()
        self.background = BackgroundTasks()
        self.is_open = False
        self.is_closing = False
        """Whether a close has begun: calls under way may end, new ones are refused."""
        self.started_ms = 0
        self._is_over = False

    def start(self, data: HeartbeatSource) -> None:
        """Open for work; no server needs to be reachable yet."""
        self.identity.check_process()
        if self.is_open or self._is_over:
            raise UsageError("a client is started once: make a new one")
        config = self.config
        self.started_ms = config.clock.now_ms()
        self.pool = ChannelPool(self.router, clock=config.clock, security=self.security)
        self.routes = Routes(NameServers(self.pool, self.addresses, config), config)
        self.membership = Membership(self.pool, self.routes, config, data)
        self.background.supervise(self.routes.refresh_forever, "routes", config.clock)
        self.background.supervise(self.membership.run, "heartbeats", config.clock)
        self.is_open = True

    def check(self) -> None:
        """Raise UsageError unless the client is open and was made in this process."""
        self.identity.check_process()
        if self._is_over or self.is_closing:
            raise UsageError("this client is closed: make a new one")
        if not self.is_open:
            raise UsageError("this client is not started: use `async with`, or await start()")

    async def close(self) -> None:
        """End all tasks and close all connections."""
        self._is_over, self.is_open = True, False
        await self.background.close()
        await self.pool.close()
