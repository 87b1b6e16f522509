"""EtcdCluster: three etcd members on a network in memory, which serve the JSON gateway.

    request ──▶ member ── perhaps late ──▶ a majority in reach? ──▶ EtcdState ──▶ answer, or none
                                               │ no: it waits, and is given up at last

Controllers speak HTTP to it, by their own client. A member answers only while it reaches a majority
of all; a request that waited for that is carried out late, and nobody knows.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec

from roquet.testing.clock import VirtualLoop
from simulation.hosts import Hosts
from simulation.replicated.etcd_state import EtcdState, LeaseNotFound, puts

ETCD_PORT: Final = 2379

ETCD_HOSTS: Final = ("10.0.2.1", "10.0.2.2", "10.0.2.3")

MAJORITY: Final = len(ETCD_HOSTS) // 2 + 1

RETRY_MS: Final = 100
"""Ms between two looks for a majority."""

GIVE_UP_MS: Final = 7_000
"""Ms for which a request waits for a majority, as in etcd."""

LOST: Final = 0.5
"""Probability that an answer is lost while etcd loses answers."""

LATE_MS: Final = 4_000
"""Longest time after which a slow etcd carries out a request: longer than a controller waits."""

Answer = Callable[[int, dict[str, Any]], None]
"""Answers a request with a status and a body."""


class EtcdCluster:
    """One etcd. `on_write` is called with the name and the value of each key that is written."""

    def __init__(
        self,
        loop: VirtualLoop,
        hosts: Hosts,
        rng: Random,
        is_frozen: Callable[[str], bool],
        on_write: Callable[[str, bytes], object],
    ) -> None:
        self._loop = loop
        self._hosts = hosts
        self._rng = rng
        self._is_frozen = is_frozen
        self._on_write = on_write
        self._state = EtcdState(rng)
        self._saved: EtcdState | None = None
        self.dead: set[str] = set()
        """Members whose process is dead."""
        self.is_slow = False
        self.loses_answers = False

    @property
    def has_lost_data(self) -> bool:
        """Whether it has lost its keys, and they are not restored yet."""
        return self._saved is not None

    async def start(self) -> None:
        """Start all members."""
        for host in ETCD_HOSTS:
            await self.start_member(host)

    async def start_member(self, host: str) -> None:
        """Start a member, or start it again: its data are on its disk, and with the others.

        One that is killed at the same moment stays dead.
        """
        self._loop.network.revive(host)
        self.dead.discard(host)
        try:
            await self._hosts.run(host, self._listen(host))
        except asyncio.CancelledError:
            if host not in self.dead:
                raise

    async def _listen(self, host: str) -> None:
        await self._loop.create_server(lambda: _GatewayProtocol(self, host), host, ETCD_PORT)

    def kill_member(self, host: str) -> None:
        """Kill a member's process."""
        self.dead.add(host)
        self._hosts.kill(host)

    def lose_data(self) -> None:
        """Begin again without any key, as after a mistake of an operator."""
        self._saved = self._state
        self._state = EtcdState(self._rng)

    def restore_data(self) -> None:
        """Restore the keys as they were when they were lost."""
        assert self._saved is not None
        self._state, self._saved = self._saved.restarted(self._now_ms()), None

    # -- requests -----------------------------------------------------------------------------

    def submit(self, host: str, path: str, request: dict[str, Any], answer: Answer) -> None:
        """Carry out a request that came to a member, now or later."""
        if self.is_slow:
            late_ms = self._rng.randrange(LATE_MS)
            self._loop.call_later(late_ms / 1_000, self._try, host, path, request, answer, 0)
        else:
            self._try(host, path, request, answer, 0)

    def _try(
        self, host: str, path: str, request: dict[str, Any], answer: Answer, waited_ms: int
    ) -> None:
        if host in self.dead:
            return
        if self._reaches_majority(host):
            self._carry_out(path, request, answer)
        elif waited_ms >= GIVE_UP_MS:
            answer(503, {"message": "etcdserver: request timed out"})
        else:
            waited_ms += RETRY_MS
            again = self._loop.call_later
            again(RETRY_MS / 1_000, self._try, host, path, request, answer, waited_ms)

    def _reaches_majority(self, host: str) -> bool:
        network = self._loop.network
        reached = [
            other
            for other in ETCD_HOSTS
            if other == host
            or not (
                other in self.dead
                or self._is_frozen(other)
                or network.is_partitioned(host, other)
                or network.is_partitioned(other, host)
            )
        ]
        return len(reached) >= MAJORITY

    def _carry_out(self, path: str, request: dict[str, Any], answer: Answer) -> None:
        is_lost = self.loses_answers and self._rng.random() < LOST
        if is_lost and self._rng.random() < LOST:  # the request itself
            return
        try:
            result = self._state.call(path, request, self._now_ms())
        except LeaseNotFound as error:
            answer(404, {"message": str(error)})
            return
        if path == "/v3/kv/txn" and result["succeeded"]:
            for name, value in puts(request):
                self._on_write(name, value)
        if not is_lost:
            answer(200, result)

    def _now_ms(self) -> int:
        return self._loop.clock.monotonic_ms()


class _GatewayProtocol(asyncio.Protocol):
    """One connection to a member."""

    def __init__(self, cluster: EtcdCluster, host: str) -> None:
        self._cluster = cluster
        self._host = host
        self._data = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (request := self._next_request()) is not None:
            path, body = request
            self._cluster.submit(self._host, path, msgspec.json.decode(body), self._answer)

    def _next_request(self) -> tuple[str, bytes] | None:
        """Path and body of the next whole request."""
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found:
            return None
        size = int(head.rpartition(b"Content-Length: ")[2])
        if len(rest) < size:
            return None
        self._data = rest[size:]
        return head.split(b" ")[1].decode(), rest[:size]

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        if not self._transport.is_closing():
            data = msgspec.json.encode(body)
            head = f"HTTP/1.1 {status} \r\nContent-Length: {len(data)}\r\n\r\n"
            self._transport.write(head.encode() + data)
