"""ClientTable: the proxy's clients, with their settings and the stream that each listens to."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from roquet.model.errors import CallTimeout, ConnectFailed
from roquet.net.clock import Clock
from roquet.proxy.caller import Caller
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.rules.proxy.status import ProxyRefusal, StatusCode

EXPIRY_MS: Final = 120_000
"""Time without a heartbeat after which a client is forgotten."""

ANSWER_MS: Final = 4_000
"""Time of a client's answer to a command: operators' tools wait 5 s for it."""

COMMANDS_MAX: Final = 256
"""Commands that wait for a client that reads none; further ones are dropped."""

Commands = asyncio.Queue[service.TelemetryCommand | None]
"""Commands on their way to a client; None ends its stream."""


CLIENTS_MAX: Final = 20_000
"""Clients that are known at a time: ids are the clients' own choice."""

SETTINGS_SIZE_MAX: Final = 64 * 1024
"""Bytes of one client's settings: a thousand topics fit."""

SETTINGS_TOTAL_MAX: Final = 32 * 1024 * 1024
"""Bytes of all clients' settings: those of official clients have some hundred bytes."""


class ProxyClient:
    """One client of the proxy."""

    def __init__(self, caller: Caller, settings: pb.Settings, clock: Clock) -> None:
        self.caller = caller
        self.settings = settings
        self.since_ms = clock.now_ms()
        """Time of its first settings, since the epoch."""
        self.last_heartbeat_ms = clock.monotonic_ms()
        self.commands: Commands | None = None
        """None while it has no stream."""
        self._answers: dict[str, asyncio.Future[service.TelemetryCommand]] = {}
        """Answers that are waited for, by the nonces of their commands."""

    @property
    def group(self) -> str:
        """The consumer group that it is in; empty for a producer."""
        return self.settings.subscription.group.name

    def is_member_of(self, group: str) -> bool:
        """Whether it is in a group and has a stream: one that has gone elsewhere has none."""
        return self.group == group and self.commands is not None

    async def ask(self, nonce: str, command: service.TelemetryCommand) -> service.TelemetryCommand:
        """Send a command with this nonce, and wait for the answer.

        Raises ConnectFailed when the client has no stream, CallTimeout when it does not answer.
        """
        if not self.push(command):
            raise ConnectFailed(f"client {self.caller.client_id!r:.200} reads no commands now")
        answer: asyncio.Future[service.TelemetryCommand] = (
            asyncio.get_running_loop().create_future()
        )
        self._answers[nonce] = answer
        try:
            async with asyncio.timeout(ANSWER_MS / 1_000):
                return await answer
        except TimeoutError:
            text = f"client {self.caller.client_id!r:.200} gave no answer within {ANSWER_MS} ms"
            raise CallTimeout(text) from None
        finally:
            del self._answers[nonce]

    def take_answer(self, nonce: str, answer: service.TelemetryCommand) -> None:
        """Take the answer to a command; one that nobody waits for is dropped."""
        if (waiting := self._answers.get(nonce)) is not None and not waiting.done():
            waiting.set_result(answer)

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
        self._size = 0
        """Bytes of their settings."""
        self._groups: dict[str, dict[str, ProxyClient]] = {}
        """Consumers by group and client id."""
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
    def consumers(self) -> int:
        """Number of clients that are in a group."""
        return sum(map(len, self._groups.values()))

    @property
    def awaited(self) -> int:
        """Number of clients whose settings requests wait for."""
        return len(self._awaited)

    def get(self, client_id: str) -> ProxyClient | None:
        """A client; None if it has sent no settings."""
        return self._clients.get(client_id)

    def owner_of(self, client_id: str) -> str:
        """The user whose client this is; empty for an unknown one, or without access control."""
        client = self._clients.get(client_id)
        return client.caller.user if client is not None else ""

    def update(
        self, caller: Caller, settings: pb.Settings, commands: Commands | None
    ) -> ProxyClient:
        """Take a client's settings, and the stream that they came by, if they came by one.

        Raises ProxyRefusal for too long ones, and for one client too many.
        """
        if (size := settings.ByteSize()) > SETTINGS_SIZE_MAX:
            text = f"settings of {size} bytes are over the limit of {SETTINGS_SIZE_MAX}"
            raise ProxyRefusal(StatusCode.BAD_REQUEST, text)
        client = self._clients.get(caller.client_id)
        total = self._size + size - (client.settings.ByteSize() if client is not None else 0)
        if (client is None and len(self._clients) >= CLIENTS_MAX) or total > SETTINGS_TOTAL_MAX:
            text = (
                f"this proxy has {len(self._clients)} clients: use another one, or start one more"
            )
            raise ProxyRefusal(StatusCode.TOO_MANY_REQUESTS, text)
        self._size = total
        if client is None:
            client = self._clients[caller.client_id] = ProxyClient(caller, settings, self._clock)
        self._leave_group(client)  # the settings may name another one
        client.caller, client.settings, client.commands = caller, settings, commands
        client.last_heartbeat_ms = self._clock.monotonic_ms()
        if client.group:
            self._groups.setdefault(client.group, {})[caller.client_id] = client
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
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1_000):
                    await event.wait()
        finally:
            events.discard(event)
            if not events:
                self._awaited.pop(client_id, None)
        if (client := self._clients.get(client_id)) is None:  # it may have left again
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
        if (client := self._clients.pop(client_id, None)) is None:
            raise _unknown(client_id)
        self._size -= client.settings.ByteSize()
        self._leave_group(client)
        for callback in self.on_gone:
            callback(client_id)

    def expire(self) -> None:
        """Forget clients that were not heard of for long, and end their streams."""
        limit_ms = self._clock.monotonic_ms() - EXPIRY_MS
        for client_id, client in list(self._clients.items()):
            if client.last_heartbeat_ms < limit_ms:
                if client.commands is not None:
                    client.commands.put_nowait(None)
                self.remove(client_id)

    def members_of(self, group: str) -> Sequence[ProxyClient]:
        """The consumers of a group that have a stream."""
        members = self._groups.get(group, {}).values()
        return [client for client in members if client.is_member_of(group)]

    def _leave_group(self, client: ProxyClient) -> None:
        members = self._groups.get(client.group, {})
        members.pop(client.caller.client_id, None)
        if not members:
            self._groups.pop(client.group, None)

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
