"""Links: connections of servers to each other, each through a proxy that can be cut.

Servers name addresses in their answers. Proxies replace them, so that a server never learns the way
past its own proxies.
"""

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from enum import Enum
from typing import Final

from roquet.testing.tcp_proxy import Direction, TcpProxy

CLOSE_LOOKS_MAX: Final = 100


class Flow(Enum):
    """Bytes that a cut holds back, as seen by one end."""

    OUT = "what it sends"
    IN = "what it is sent"
    BOTH = "both ways"


class Links:
    """Proxies by the server that connects and the one that it connects to."""

    def __init__(self, ports: Iterable[int]) -> None:
        self._ports = iter(ports)
        self._proxies: dict[tuple[str, str], list[TcpProxy]] = {}
        self._running = AsyncExitStack()

    async def add(self, source: str, target: str, address: str) -> TcpProxy:
        """Add a proxy for connections of a process to an address of another."""
        proxy = TcpProxy(address, port=next(self._ports))
        await self._running.enter_async_context(proxy)
        self._proxies.setdefault((source, target), []).append(proxy)
        return proxy

    def between(self, source: str, target: str) -> Sequence[TcpProxy]:
        """Proxies for a process's connections to another, in the order in which they were added."""
        return self._proxies.get((source, target), ())

    def cut(self, one: str, others: Iterable[str], flow: Flow) -> None:
        """Cut a process off from others, one way or both."""
        out = {Flow.OUT: Direction.TO_TARGET, Flow.IN: Direction.FROM_TARGET}
        back = {Flow.OUT: Direction.FROM_TARGET, Flow.IN: Direction.TO_TARGET}
        for other in others:
            for proxy in self.between(one, other):
                proxy.cut(out.get(flow, Direction.BOTH))
            for proxy in self.between(other, one):
                proxy.cut(back.get(flow, Direction.BOTH))

    def heal(self) -> None:
        """Let everything pass again."""
        for proxy in itertools.chain.from_iterable(self._proxies.values()):
            if proxy.is_cut:
                proxy.heal()

    async def close(self) -> None:
        """End all proxies; the processes have ended, and so do their connections."""
        self.heal()
        proxies = [*itertools.chain.from_iterable(self._proxies.values())]
        for _ in range(CLOSE_LOOKS_MAX):
            if not any(proxy.connections for proxy in proxies):
                break
            await asyncio.sleep(0.02)
        await self._running.aclose()
