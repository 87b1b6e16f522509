"""ClientTable: the proxy's clients, with their settings and the stream that each listens to."""

import asyncio
from collections.abc import Callable, Sequence
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


CLIENTS_MAX: Final = 20_000
"""Clients that are known at a time: ids are the clients' own choice."""

SETTINGS_SIZE_MAX: Final = 64 * 1024
"""Bytes of one client's settings: a thousand topics fit."""


class ProxyClient:
    """One client of the proxy."""

    def __init__(self, caller: Caller, settings: pb.Settings, now_ms: int) -> None:
        self.caller = caller
        self.settings = settings
        self.last_heartbeat_ms = now_ms
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
        self._awaited: dict[str, set[asyncio.Event]] = {}
        """By client, one for each request that waits for its settings; set when they come."""
        self.on_gone: list[Callable[[str], object]] = []
        """Called with the id of a client that has left or was forgotten."""

    def __len__(self) -> int:
        """Number of clients."""
        return len(self._clients)

    @property
    def streams(self) -> int:
        """Number of clients that listen to commands."""
        return sum(client.commands is not None for client in self._clients.values())

    @property
    def awaited(self) -> int:
        """Number of clients whose settings requests wait for."""
        return len(self._awaited)

    def get(self, client_id: str) -> ProxyClient | None:
        """A client; None if it has sent no settings."""
        return self._clients.get(client_id)

    def update(self, caller: Caller, settings: pb.Settings, commands: Commands) -> ProxyClient:
        """Take a client's settings, and the stream that they came by.

        Raises ProxyRefusal for too long ones, and for one client too many.
        """
        if (size := settings.ByteSize()) > SETTINGS_SIZE_MAX:
            text = f"settings of {size} bytes are over the limit of {SETTINGS_SIZE_MAX}"
            raise ProxyRefusal(StatusCode.BAD_REQUEST, text)
        now_ms = self._clock.monotonic_ms()
        client = self._clients.get(caller.client_id)
        if client is None and len(self._clients) >= CLIENTS_MAX:
            text = f"this proxy has {CLIENTS_MAX} clients: use another one, or start one more"
            raise ProxyRefusal(StatusCode.TOO_MANY_REQUESTS, text)
        if client is None:
            client = self._clients[caller.client_id] = ProxyClient(caller, settings, now_ms)
        client.caller, client.settings, client.last_heartbeat_ms = caller, settings, now_ms
        client.commands = commands
        for event in self._awaited.get(caller.client_id, ()):
            event.set()
        return client

    def note_heartbeat(self, client_id: str) -> ProxyClient:
        """Note a heartbeat; raises ProxyRefusal for a client whose settings are not known."""
        client = self._clients.get(client_id)
        if client is None:
            raise _unknown(client_id)
        client.last_heartbeat_ms = self._clock.monotonic_ms()
        return client

    async def wait_for(self, client_id: str, wait_ms: int) -> ProxyClient:
        """A client, once its settings have come: they may be under way by another stream.

        Raises ProxyRefusal when they do not come in time.
        """
        if (client := self._clients.get(client_id)) is not None:
            return client
        event, events = asyncio.Event(), self._awaited.setdefault(client_id, set())
        events.add(event)
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                await event.wait()
        except TimeoutError:
            raise _unknown(client_id) from None
        finally:
            events.discard(event)
            if not events:
                self._awaited.pop(client_id, None)
        if (client := self._clients.get(client_id)) is None:  # it has left again
            raise _unknown(client_id)
        return client

    def end_streams(self) -> None:
        """End the streams of all clients, which are told to connect again elsewhere."""
        for number, client in enumerate(self._clients.values()):
            if client.commands is not None:
                command = service.ReconnectEndpointsCommand(nonce=str(number))
                client.push(service.TelemetryCommand(reconnect_endpoints_command=command))
                client.commands.put_nowait(None)

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
        for client_id in [
            key for key, it in self._clients.items() if it.last_heartbeat_ms < limit_ms
        ]:
            self.remove(client_id)

    def producers_of(self, topic: str) -> Sequence[ProxyClient]:
        """Clients that say that they send to a topic, those first that read their commands."""
        producers = [
            (client.commands.qsize(), client)
            for client in self._clients.values()
            if client.commands is not None
            and any(it.name == topic for it in client.settings.publishing.topics)
        ]
        producers.sort(key=lambda pair: pair[0])
        return [client for _, client in producers]


def _unknown(client_id: str) -> ProxyRefusal:
    return ProxyRefusal(
        StatusCode.UNRECOGNIZED_CLIENT_TYPE,
        f"no settings of client {client_id!r:.200} are known: it sends them by its Telemetry "
        "stream first",
    )
