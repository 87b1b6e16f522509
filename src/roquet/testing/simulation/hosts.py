"""Hosts: machines of a simulated cluster, whose processes can be killed."""

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

from roquet.testing.clock import VirtualLoop
from roquet.testing.network import Network

T = TypeVar("T")


class Hosts:
    """Knows which task runs where, so that all of a host's tasks can end at once."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._network = loop.network
        self._tasks: dict[str, dict[asyncio.Task[Any], None]] = {}
        """By host, in the order in which they began: what happens must not depend on a set's."""
        loop.set_task_factory(self._begin)

    def run(self, host: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Let something run on a host."""
        with self._network.host(host):
            return asyncio.create_task(work)

    def kill(self, host: str, *, silently: bool = False) -> None:
        """End a host's process: its tasks, its connections; the others are told, or not."""
        if silently:
            self._network.silence(host)
        else:
            self._network.kill(host)
        for task in tuple(self._tasks.get(host, ())):
            task.cancel()

    async def wait_ended(self, host: str) -> None:
        """Wait until nothing of a killed process runs any more."""
        while tasks := self._tasks.get(host):
            await asyncio.wait(tuple(tasks))

    def _begin(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        here = Network.this_host()
        tasks = self._tasks.setdefault(context.run(Network.this_host) if context else here, {})
        task: asyncio.Task[T] = asyncio.Task(work, loop=loop, context=context, **options)
        tasks[task] = None
        task.add_done_callback(lambda done: tasks.pop(done, None))
        return task
