import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest

from roquet.cli.process.child_processes import ChildProcess, ChildProcessFailed
from roquet.cli.servers import supervised_process
from roquet.cli.servers.supervised_process import (
    SupervisedProcess,
    start_unless_stopped,
    stop_all,
)


class FakeChild(ChildProcess):
    """A child process that ends when a test says so."""

    def __init__(self, name: str = "broker-a") -> None:
        self.name = name
        self.address = "127.0.0.1:1"
        self.end = asyncio.Event()
        self.fails_to_stop = False

    async def lines(self) -> AsyncIterator[str]:
        yield "a line"

    async def wait(self) -> int:
        await self.end.wait()
        return -9

    async def stop(self) -> None:
        if self.fails_to_stop:
            raise ChildProcessFailed(f"{self.name} did not stop")
        self.end.set()

    def failure(self) -> ChildProcessFailed:
        return ChildProcessFailed(f"{self.name} ended with code -9")


class ScriptedStarts:
    """Outcomes of starts, in turn: a child or an error; keeps the pauses between them."""

    def __init__(self, *outcomes: FakeChild | Exception) -> None:
        self._outcomes = list(outcomes)
        self.pauses: list[float] = []

    async def start(self) -> ChildProcess:
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


async def until(condition: Callable[[], object]) -> None:
    for _ in range(1_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never held")


async def test_a_dead_process_is_restarted_after_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second, third = FakeChild(), FakeChild(), FakeChild()
    starts = ScriptedStarts(second, ChildProcessFailed("no disk"), third)
    it = supervised(first, starts)
    task = asyncio.create_task(it.supervise())
    first.end.set()
    await until(lambda: it.child is second)
    second.end.set()
    await until(lambda: it.child is third)
    assert starts.pauses == [1, 2, 4]
    assert it.restarts == 2
    assert caplog.messages[:2] == [
        "broker-a ended with code -9",
        "broker-a is started again in 1 s",
    ]
    assert "no disk; tried again in 4 s" in caplog.text
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_failed_start_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    first, second = FakeChild(), FakeChild()
    it = supervised(first, ScriptedStarts(OSError(28, "No space left on device"), second))
    task = asyncio.create_task(it.supervise())
    first.end.set()
    await until(lambda: it.child is second)
    assert "broker-a: [Errno 28] No space left on device; tried again in 2 s" in caplog.text
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_pauses_have_a_maximum() -> None:
    last = FakeChild()
    starts = ScriptedStarts(*(ChildProcessFailed("no disk") for _ in range(8)), last)
    first = FakeChild()
    it = supervised(first, starts)
    task = asyncio.create_task(it.supervise())
    first.end.set()
    await until(lambda: it.child is last)
    assert max(starts.pauses) == supervised_process.PAUSE_MAX_S
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_process_that_does_not_stop_does_not_keep_others_from_stopping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    child = FakeChild()
    child.fails_to_stop = True
    await supervised(child, ScriptedStarts()).stop()
    assert "broker-a did not stop" in caplog.text


def supervised(child: FakeChild, starts: ScriptedStarts) -> SupervisedProcess:
    """A supervised process whose child is a fake."""
    return SupervisedProcess(child, starts.start, starts.sleep)


async def test_all_are_stopped_at_once() -> None:
    children = FakeChild("a"), FakeChild("b")
    await stop_all([supervised(child, ScriptedStarts()) for child in children])
    assert all(child.end.is_set() for child in children)


async def test_a_start_that_takes_long_is_given_up_at_a_stop_signal() -> None:
    stop, ended = asyncio.Event(), list[str]()

    async def slow() -> ChildProcess:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("its process")
            raise
        raise AssertionError

    starting = asyncio.create_task(start_unless_stopped(slow, stop))
    await asyncio.sleep(0)
    stop.set()
    assert await starting is None
    assert ended == ["its process"]


async def test_a_start_that_is_over_counts_in_spite_of_a_stop_signal() -> None:
    stop, child = asyncio.Event(), FakeChild()
    stop.set()
    assert await start_unless_stopped(ScriptedStarts(child).start, stop) is child
    failing = ScriptedStarts(ChildProcessFailed("no port"))
    with pytest.raises(ChildProcessFailed):
        await start_unless_stopped(failing.start, asyncio.Event())
