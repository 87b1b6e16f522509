"""ClientTable: the proxy's clients, with their settings and the stream that each listens to."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from roquet.net.clock import Clock
from roquet.proxy.caller import Caller
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.rules.proxy.status import ProxyRefusal, StatusCode

EXPIRY_MS: Final = 120_000
"""Time without a heartbeat after which a client is forgotten."""

COMMANDS_MAX: Final = 256
"""Commands that wait for a client that reads none; further ones are dropped."""

Commands = asyncio.Queue[service.TelemetryCommand | None]
"""Commands on their way to a client; None ends its stream."""


class ProxyClient:
    """One client of the proxy."""

    def __init__(self, caller: Caller, settings: pb.Settings, now_ms: int) -> None:
        self.caller = caller
        self.settings = settings
        self.heard_ms = now_ms
        self.commands: Commands | None = None
        """None while it has no stream."""

    def push(self, command: service.TelemetryCommand) -> bool:
        """Send a command; False when the client has no stream or does not read it."""
        if self.commands is None or self.commands.qsize() >= COMMANDS_MAX:
            return False
        self.commands.put_nowait(command)
        return True


class ClientTable:
    """The clients that have sent settings and are heard of."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._clients: dict[str, ProxyClient] = {}
        self._awaited: dict[str, asyncio.Event] = {}
        """Set when settings of a client come that a request waits for."""
        self.on_gone: list[Callable[[str], object]] = []
        """Called with the id of a client that has left or was forgotten."""

    def __iter__(self) -> Iterator[ProxyClient]:
        return iter(self._clients.values())

    def get(self, client_id: str) -> ProxyClient | None:
        """A client; None if it has sent no settings."""
        return self._clients.get(client_id)

    def update(self, caller: Caller, settings: pb.Settings, commands: Commands) -> ProxyClient:
        """Take a client's settings, and the stream that they came by."""
        now_ms = self._clock.monotonic_ms()
        client = self._clients.get(caller.client_id)
        if client is None:
            client = self._clients[caller.client_id] = ProxyClient(caller, settings, now_ms)
        client.caller, client.settings, client.heard_ms = caller, settings, now_ms
        client.commands = commands
        if (event := self._awaited.pop(caller.client_id, None)) is not None:
            event.set()
        return client

    def heard(self, client_id: str) -> ProxyClient:
        """Note a heartbeat; raises ProxyRefusal for a client whose settings are not known."""
        client = self._clients.get(client_id)
        if client is None:
            raise _unknown(client_id)
        client.heard_ms = self._clock.monotonic_ms()
        return client

    async def wait_for(self, client_id: str, wait_ms: int) -> ProxyClient:
        """A client, once its settings have come: they may be under way by another stream.

        Raises ProxyRefusal when they do not come in time.
        """
        if (client := self._clients.get(client_id)) is None:
            event = self._awaited.setdefault(client_id, asyncio.Event())
            try:
                async with asyncio.timeout(wait_ms / 1_000):
                    await event.wait()
            except TimeoutError:
                self._awaited.pop(client_id, None)
            client = self._clients.get(client_id)
        if client is None:
            raise _unknown(client_id)
        return client

    def leave_stream(self, client: ProxyClient, commands: Commands) -> None:
        """Note that a stream has ended; the client itself stays until it expires."""
        if client.commands is commands:
            client.commands = None

    def remove(self, client_id: str) -> None:
        """Forget a client; raises ProxyRefusal for one that is not known."""
        if self._clients.pop(client_id, None) is None:
            raise _unknown(client_id)
        for callback in self.on_gone:
            callback(client_id)

    def expire(self) -> None:
        """Forget clients that were not heard of for long."""
        limit_ms = self._clock.monotonic_ms() - EXPIRY_MS
        for client_id in [key for key, it in self._clients.items() if it.heard_ms < limit_ms]:
            self.remove(client_id)

    def producers_of(self, topic: str) -> Iterator[ProxyClient]:
        """Clients that say that they send to a topic, and listen."""
        for client in self._clients.values():
            publishing = client.settings.publishing
            if client.commands is not None and any(it.name == topic for it in publishing.topics):
                yield client


def _unknown(client_id: str) -> ProxyRefusal:
    return ProxyRefusal(
        StatusCode.UNRECOGNIZED_CLIENT_TYPE,
        f"no settings of client {client_id!r:.200} are known: it sends them by its Telemetry "
        "stream first",
    )
