"""Hosts: machines of a simulated cluster whose processes, as groups of tasks, can be killed."""

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

from roquet.testing.clock import VirtualLoop
from roquet.testing.network import Network

T = TypeVar("T")


class Hosts:
    """Keeps track of the tasks of each host, so that all of them can end at once."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._network = loop.network
        self._tasks: dict[str, dict[asyncio.Task[Any], None]] = {}
        """By host, in the order in which they began: a set's order would differ from run to run."""
        loop.set_task_factory(self._begin)

    def run(self, host: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine on a host."""
        with self._network.host(host):
            return asyncio.create_task(work)

    def kill(self, host: str, *, silently: bool = False) -> None:
        """Kill a host's process: its tasks and connections. With `silently` peers see no end."""
        if silently:
            self._network.silence(host)
        else:
            self._network.kill(host)
        for task in tuple(self._tasks.get(host, ())):
            task.cancel()

    async def wait_ended(self, host: str) -> None:
        """Wait until no task of a killed process runs any more."""
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
