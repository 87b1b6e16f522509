"""FrozenHosts: machines that stand still while time goes on, as after SIGSTOP.

    freeze ──▶ callbacks of the host are held back: what arrives, timers, tasks ──▶ thaw: all run

A host is known by the context of a callback, see `Network.host`. The others notice nothing but the
silence: connections stay open, and what they send waits.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

from roquet.testing.clock import VirtualLoop
from roquet.testing.network import Network
from roquet.testing.virtual_timers import VirtualCallback, VirtualTimer


class FrozenHosts:
    """Freezes and thaws hosts of a virtual loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._held: dict[str, list[asyncio.Handle]] = {}
        """Callbacks that were due, by host."""
        self._timers: dict[str, list[VirtualTimer]] = {}
        """Timers that have not been due before the host was frozen."""

    @property
    def hosts(self) -> list[str]:
        """Hosts that are frozen now."""
        return [*self._held]

    def freeze(self, host: str) -> None:
        """Let nothing of a host run from now on; nothing happens if it is frozen."""
        if host in self._held:
            return
        if not self._held:
            self._intercept()
        self._held[host] = self._take_ready(host)
        self._timers[host] = self._take_timers(host)

    def thaw(self, host: str) -> None:
        """Let a host go on: all that was due meanwhile runs at once, in its order."""
        if host not in self._held:
            return
        held, timers = self._held.pop(host), self._timers.pop(host)
        if not self._held:
            del self._loop.call_soon, self._loop.call_at
        self._loop.ready.extend(held)
        for timer in timers:
            if not timer.cancelled():
                self._loop.timers.push(timer)

    def _take_ready(self, host: str) -> list[asyncio.Handle]:
        """Take a host's callbacks out of the queue of the loop, whose length may not change."""
        ready, taken = self._loop.ready, list[asyncio.Handle]()
        for index, handle in enumerate(ready):
            if not isinstance(handle, VirtualCallback | VirtualTimer):
                continue  # of a file, which is no host's
            if Network.host_of(handle.context) == host:
                taken.append(handle)
                ready[index] = VirtualCallback(_nothing, (), self._loop)
        return taken

    def _take_timers(self, host: str) -> list[VirtualTimer]:
        return self._loop.timers.remove(lambda timer: Network.host_of(timer.context) == host)

    def _intercept(self) -> None:
        """Hold back new callbacks of frozen hosts: the loop has no hook, so methods are covered."""
        loop: Any = self._loop
        call_soon, call_at = loop.call_soon, loop.call_at

        def call_soon_unless_frozen(
            callback: Callable[..., Any], *args: Any, context: Context | None = None
        ) -> asyncio.Handle:
            held = self._held.get(_host_of(context))
            if held is None:
                handle: asyncio.Handle = call_soon(callback, *args, context=context)
            else:
                handle = VirtualCallback(callback, args, loop, context)
                held.append(handle)
            return handle

        def call_at_unless_frozen(
            when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
        ) -> VirtualTimer:
            timers = self._timers.get(_host_of(context))
            if timers is None:
                timer: VirtualTimer = call_at(when, callback, *args, context=context)
            else:
                timer = VirtualTimer(when, callback, args, loop, context)
                timers.append(timer)
            return timer

        loop.call_soon, loop.call_at = call_soon_unless_frozen, call_at_unless_frozen


def _host_of(context: Context | None) -> str:
    return Network.this_host() if context is None else Network.host_of(context)


def _nothing() -> None:
    """Do nothing."""
