"""Session: the parts that every client has: identity, connections, routes and heartbeats."""

import os
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, ClassVar, cast

from roquet.client.config import (
    ClientConfig,
    ConsumerConfig,
    SpanProvider,
    resolve_name_servers,
)
from roquet.client.connection.background import BackgroundTasks
from roquet.client.connection.heartbeats import HeartbeatSource, Membership
from roquet.client.connection.identity import ClientIdentity
from roquet.client.connection.routes import NameServers, Routes
from roquet.client.connection.security import connection_security
from roquet.model.errors import ConfigError, UsageError
from roquet.model.namespaces import check_namespace
from roquet.model.route import MASTER_ID
from roquet.net.loop import CURRENT_PROCESS, OwnLoop
from roquet.net.pool import ChannelPool
from roquet.net.router import Router
from roquet.rules.health import ClientHealth
from roquet.wire.call import Call, R

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from roquet.client.spans.client_spans import ClientSpans
    from roquet.client.spans.message_attributes import SpannedMessage


class Session:
    """One client's shared parts, from `start` to `close`."""

    pool: ChannelPool
    routes: Routes
    membership: Membership
    default_tracing: ClassVar[bool | SpanProvider] = False
    """The setting `tracing` of clients that have none: an instrumentor sets it."""

    def __init__(self, namesrv: str | Sequence[str] | None, config: ClientConfig) -> None:
        check_namespace(config.namespace or "")
        self.addresses = resolve_name_servers(namesrv, os.environ)
        self.config = config
        self.security = connection_security(config, os.environ)
        self.identity = ClientIdentity(config)
        self._own_loop = OwnLoop()
        self.router = Router()
        self.background = BackgroundTasks()
        self.is_open = False
        self.is_closing = False
        """Whether a close has begun: calls under way may end, new ones are refused."""
        self.started_ms = 0
        self._is_over = False
        self.fault: Exception | None = None
        """The error that has ended the client's work before its close."""
        self.spans: ClientSpans | None = None
        """Makes the client's spans for OpenTelemetry; None without the setting `tracing`."""

    def open_spans(self, consumer_group: str | None = None) -> None:
        """Make spans if the settings ask for them; ConfigError without OpenTelemetry's API."""
        config = self.config
        tracing = self.default_tracing if config.tracing is None else config.tracing
        if tracing is False:
            return
        if tracing is not True and not hasattr(tracing, "get_tracer"):
            raise ConfigError(f"tracing: {tracing!r:.100} is not a bool or a TracerProvider")
        try:
            # Not at the top: the package is an extra, and an import that most clients do not need.
            from roquet.client.spans.client_spans import ClientSpans, SpannedClient
        except ModuleNotFoundError as error:
            raise ConfigError(
                "tracing: opentelemetry-api is missing: pip install 'roquet[tracing]'"
            ) from error
        model = config.message_model.value.lower() if isinstance(config, ConsumerConfig) else ""
        client = SpannedClient(
            self.identity.client_id,
            config.namespace,
            consumer_group,
            model,
            lambda broker: self.routes.addresses(broker).get(MASTER_ID),
            config.clock.now_ms,
        )
        provider = None if tracing is True else tracing
        self.spans = ClientSpans(client, cast("TracerProvider | None", provider))

    def settle_span(self, name: str, message: "SpannedMessage") -> AbstractContextManager[object]:
        """A span around a request that settles a message, where spans are made."""
        return nullcontext() if self.spans is None else self.spans.settle(name, message)

    def start(self, data: HeartbeatSource) -> None:
        """Open for work; no server needs to be reachable yet."""
        self.identity.check_process()
        if self.is_open or self._is_over:
            raise UsageError("a client is started once: make a new one")
        self._own_loop.check()
        config = self.config
        self.started_ms = config.clock.now_ms()
        self.pool = ChannelPool(self.router, clock=config.clock, security=self.security)
        self.routes = Routes(NameServers(self.pool, self.addresses, config), config)
        self.membership = Membership(self.pool, self.routes, config, data)
        self.background.supervise(self.routes.refresh_forever, "routes", config.clock)
        self.background.supervise(self.membership.run, "heartbeats", config.clock)
        self.is_open = True

    def health(self, *failures: str) -> ClientHealth:
        """Health of the connections; `failures` are those of the client's other work."""
        if not self.is_open or self.fault is not None:
            return ClientHealth(is_open=False, last_error=str(self.fault) if self.fault else None)
        reached = {
            broker.broker_name: self.membership.is_reached(
                broker.leader or broker.any_address or ""
            )
            for broker in self.routes.brokers
        }
        found = (*failures, self.membership.failure, self.routes.failure)
        return ClientHealth(
            is_open=not self.is_closing and not self.background.is_idle,
            brokers=tuple(sorted(name for name, is_reached in reached.items() if is_reached)),
            lost_brokers=tuple(sorted(name for name, is_ok in reached.items() if not is_ok)),
            last_error=next((failure for failure in found if failure is not None), None),
        )

    async def call(self, broker_name: str, call: Call[R], timeout_ms: int | None = None) -> R:
        """Call a broker's leader, within `config.timeout_ms` by default; see `ChannelPool.call`.

        Raises ConnectFailed when the leader's address is not known.
        """
        limit_ms = self.config.timeout_ms if timeout_ms is None else timeout_ms
        return await self.pool.call(self.routes.leader(broker_name), call, limit_ms)

    def check_owner(self) -> None:
        """Raise UsageError in a process or an event loop that is not the client's own."""
        self.identity.check_process()
        self._own_loop.check()

    def check(self) -> None:
        """Raise UsageError unless the client is open, and here is its process and event loop."""
        if CURRENT_PROCESS.pid != self.identity.pid:  # no call for each send
            self.identity.check_process()
        if self._is_over or self.is_closing:
            raise UsageError("this client is closed: make a new one")
        if not self.is_open:
            raise UsageError(
                "this client is not started: enter it (with, async with), or call start()"
            )
        self._own_loop.check()

    def __del__(self) -> None:
        """Warn of a client that nobody closed, as Python does of files and sockets."""
        # False for what a forked child inherits, or what failed before it was open.
        if getattr(self, "is_open", False) and CURRENT_PROCESS.pid == self.identity.pid:
            warnings.warn(
                f"client {self.identity.client_id} was not closed: use `async with`, or close it",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    async def close(self) -> None:
        """End all tasks and close all connections."""
        self._is_over, self.is_open = True, False
        await self.background.close()
        await self.pool.close()
