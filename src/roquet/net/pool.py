"""Channel pool: one channel for each address, with back-off after a failure to connect."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, cast

import msgspec

from roquet.model.errors import CallRefused, ConnectFailed, UsageError
from roquet.net.address import split_address
from roquet.net.channel import CONNECT_TIMEOUT_MS, PLAIN, Channel, Security
from roquet.net.clock import SYSTEM_CLOCK, Clock
from roquet.net.loop import CURRENT_PROCESS, OwnLoop
from roquet.net.router import CALL_TIMEOUT_MS, R, Router
from roquet.rules.backoff import backoff_ms
from roquet.wire.call import Call
from roquet.wire.codes import ResponseCode

if TYPE_CHECKING:
    from roquet.net.memory_transport import Factory

BACK_OFF_MS: Final = 100
"""Ms to pause after the first failure to connect; each further failure doubles it."""

BACK_OFF_MS_MAX: Final = 3_000
"""Longest pause between attempts in ms: a broker that comes back is found within it."""

IDLE_MS: Final = 100_000
"""Ms of silence after which a channel is not used again: servers close it after 120 s, and a
request sent at that moment would be lost."""

ConnectListener = Callable[[Channel], object]


class LocalServer(Protocol):
    """A server of this process."""

    def accept_local(self, client: "Factory") -> Any:
        """Connect a client without a socket; returns its protocol."""


class ChannelPool:
    """One channel for each address, shared by the whole process.

    `router` serves the calls that servers make on these channels.
    """

    def __init__(
        self,
        router: Router | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        security: Security = PLAIN,
    ) -> None:
        self._security = security
        self._router = router or Router()
        self._clock = clock
        self._pid = CURRENT_PROCESS.pid
        self._own_loop = OwnLoop()
        self._context = copy_context()
        """Context of what servers call on the channels, whoever was the first to use them."""
        self._channels: dict[str, Channel] = {}
        self._connecting: dict[str, asyncio.Task[Channel]] = {}
        self._failures: dict[str, _Failure] = {}
        self._on_connect: list[ConnectListener] = []
        self.local: Mapping[str, LocalServer] = {}
        """Servers of this process by their addresses: no socket is between."""
        self._closed = False

    def on_connect(self, callback: ConnectListener) -> None:
        """Call back with every new channel from now on."""
        self._on_connect.append(callback)

    async def call(self, address: str, call: Call[R], timeout_ms: int = CALL_TIMEOUT_MS) -> R:
        """Call the server at an address; the timeout includes the time to connect."""
        channel = self._connected(address)
        if channel is None:
            deadline_ms = self._clock.monotonic_ms() + timeout_ms
            channel = await self._wait_connected(address, timeout_ms)
            timeout_ms = deadline_ms - self._clock.monotonic_ms()
        try:
            return await channel.call(call, timeout_ms)
        except CallRefused as error:
            if error.code == ResponseCode.NO_PERMISSION:
                error.add_note(f"{address}: the request was {self._security.signed}")
            raise

    async def oneway(self, address: str, call: Call[Any]) -> None:
        """Send a one-way call to the server at an address.

        Waits to connect, and for the peer to read.
        """
        channel = await self.get(address)
        await channel.writable()
        channel.oneway(call)

    async def get(self, address: str, *, timeout_ms: int = CONNECT_TIMEOUT_MS) -> Channel:
        """The channel to an address, connected if need be. Raises ConnectFailed."""
        return self._connected(address) or await self._wait_connected(address, timeout_ms)

    def _connected(self, address: str) -> Channel | None:
        """The open channel to an address; None when there is none, or it was idle for long."""
        self._check_use()
        channel = self._channels.get(address)
        if channel is not None and channel.idle_ms() >= IDLE_MS:
            self._forget(channel, address)
            channel.hang_up("it was idle")
            return None
        return channel

    async def _wait_connected(self, address: str, timeout_ms: int) -> Channel:
        """Connect to an address, together with others who connect to it."""
        task = self._connecting.get(address) or self._begin(address)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await asyncio.shield(task)  # others wait for the same connection
        except asyncio.CancelledError:
            if (
                self._closed and task.cancelled()
            ):  # the pool was closed, the caller was not cancelled
                raise ConnectFailed(f"no connection to {address}: the client was closed") from None
            raise
        except TimeoutError as error:
            raise ConnectFailed(f"no connection to {address} within {timeout_ms} ms") from error

    async def close(self) -> None:
        """Close every channel; the pool cannot be used afterwards."""
        self._closed = True
        tasks = list(self._connecting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _check_use(self) -> None:
        if self._closed:
            raise UsageError("the client is closed: make a new one")
        pid = CURRENT_PROCESS.pid
        if pid != self._pid:
            raise UsageError(
                f"the client was made in process {self._pid} and cannot be used in its fork "
                f"{pid}: connections cannot be shared, make the client after the fork"
            )
        self._own_loop.check()

    def _begin(self, address: str) -> asyncio.Task[Channel]:
        """Start to connect; ConnectFailed while the address is backed off."""
        failure = self._failures.get(address)
        if failure is not None and self._clock.monotonic_ms() < failure.until_ms:
            raise ConnectFailed(f"{failure.reason}; next attempt within {failure.pause_ms} ms")
        work = self._connect(address)
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        self._connecting[address] = task
        task.add_done_callback(lambda done: self._began(address, done))
        return task

    def _began(self, address: str, task: asyncio.Task[Channel]) -> None:
        del self._connecting[address]
        if not task.cancelled():
            task.exception()  # those who wait raise it; asyncio must not log it

    async def _connect(self, address: str) -> Channel:
        if (server := self.local.get(address)) is not None:
            channel = self._connect_local(server)
        else:
            channel = await self._connect_by_socket(address)
        self._failures.pop(address, None)
        self._channels[address] = channel
        channel.on_close(lambda gone: self._forget(gone, address))
        for callback in self._on_connect:
            callback(channel)
        return channel

    def _connect_local(self, server: LocalServer) -> Channel:
        dispatch, signer = self._router.dispatch, self._security.signer
        return cast("Channel", server.accept_local(lambda: Channel(dispatch, self._clock, signer)))

    async def _connect_by_socket(self, address: str) -> Channel:
        host, port = split_address(address)
        try:
            return await Channel.connect(
                host, port, router=self._router, clock=self._clock, security=self._security
            )
        except ConnectFailed as error:
            self._note_failure(address, str(error))
            raise

    def _note_failure(self, address: str, reason: str) -> None:
        last = self._failures.get(address)
        pauses_ms = backoff_ms(BACK_OFF_MS, BACK_OFF_MS_MAX) if last is None else last.pauses_ms
        pause_ms = next(pauses_ms)
        self._failures[address] = _Failure(
            until_ms=self._clock.monotonic_ms() + pause_ms,
            pause_ms=pause_ms,
            pauses_ms=pauses_ms,
            reason=reason,
        )

    def _forget(self, channel: Channel, address: str) -> None:
        if self._channels.get(address) is channel:
            del self._channels[address]


class _Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed connect, and until when the address is not tried again."""

    until_ms: int
    pause_ms: int
    pauses_ms: Iterator[int]
    """The pauses after further failures."""
    reason: str
