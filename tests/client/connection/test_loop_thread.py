"""An event loop in a thread of its own."""

import asyncio
import threading
from concurrent.futures import Future

import pytest

from roquet.client.connection.loop_thread import LoopThread
from roquet.model.errors import UsageError


async def thread_name() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


async def fail() -> None:
    raise ValueError("broken")


def test_coroutines_run_there_and_their_results_come_here() -> None:
    assert LoopThread.shared().wait(thread_name()) == "roquet-loop"
    with pytest.raises(ValueError, match="broken"):
        LoopThread.shared().wait(fail())


def test_all_of_a_process_share_one() -> None:
    assert LoopThread.shared() is LoopThread.shared()


def test_waiting_on_its_own_thread_is_an_error_not_a_dead_end() -> None:
    thread = LoopThread.shared()

    async def inside() -> None:
        thread.wait(fail())

    with pytest.raises(UsageError, match="use the async client"):
        thread.wait(inside())


def test_a_fork_gets_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = LoopThread.shared()
    monkeypatch.setattr(parents, "pid", parents.pid + 1)
    monkeypatch.setattr(LoopThread, "_one", parents)
    with pytest.raises(UsageError, match="before a fork"):
        parents.wait(fail())
    childs = LoopThread.shared()
    assert childs is not parents
    assert childs.wait(thread_name()) == "roquet-loop"
    childs.loop.call_soon_threadsafe(childs.loop.stop)


def test_who_gives_up_waiting_ends_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    thread, ended = LoopThread.shared(), threading.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    class Impatient:
        def __init__(self, future: Future[None]) -> None:
            self.future = future

        def result(self) -> None:
            raise KeyboardInterrupt

        def cancel(self) -> None:
            self.future.cancel()

    real = asyncio.run_coroutine_threadsafe
    monkeypatch.setattr(
        asyncio, "run_coroutine_threadsafe", lambda work, loop: Impatient(real(work, loop))
    )
    started = real(asyncio.sleep(0), thread.loop)
    started.result()
    with pytest.raises(KeyboardInterrupt):
        thread.wait(work())
    assert not ended.is_set() or ended.wait(5)
