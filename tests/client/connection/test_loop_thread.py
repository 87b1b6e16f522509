"""An event loop in a thread of its own."""

import asyncio
import os
import signal
import sys
import threading
from concurrent.futures import CancelledError

import pytest

from roquet.client.connection.loop_thread import LoopThread
from roquet.model.errors import UsageError


async def thread_name() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


async def fail() -> None:
    raise ValueError("broken")


def test_coroutines_run_on_the_loop_thread_and_return_their_results() -> None:
    assert LoopThread.shared().wait(thread_name()) == "roquet-loop"
    with pytest.raises(ValueError, match="broken"):
        LoopThread.shared().wait(fail())


def test_a_process_has_one_shared_loop_thread() -> None:
    assert LoopThread.shared() is LoopThread.shared()


def test_waiting_on_the_loop_thread_itself_is_an_error() -> None:
    thread = LoopThread.shared()

    async def inside() -> None:
        thread.wait(fail())

    with pytest.raises(UsageError, match="use the async client"):
        thread.wait(inside())


def test_a_forked_process_gets_its_own_loop_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = LoopThread.shared()
    monkeypatch.setattr(os, "getpid", lambda: parents.pid + 1)
    with pytest.raises(UsageError, match="before a fork"):
        parents.wait(fail())
    childs = LoopThread.shared()
    assert childs is not parents
    assert childs.wait(thread_name()) == "roquet-loop"
    childs.loop.call_soon_threadsafe(childs.loop.stop)


def test_an_interrupted_wait_cancels_the_coroutine() -> None:
    ended, main = threading.Event(), threading.main_thread().ident
    assert main is not None

    async def work() -> None:
        try:
            signal.pthread_kill(main, signal.SIGINT)
            await asyncio.sleep(3600)
        finally:
            ended.set()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark leaves one of its own
    try:
        with pytest.raises(KeyboardInterrupt):
            LoopThread.shared().wait(work())
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.wait(5)


def test_a_coroutine_that_is_cancelled_is_an_error_like_others_for_the_thread_that_waits() -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(CancelledError):
        LoopThread.shared().wait(give_up())


async def test_a_blocking_wait_in_a_coroutine_is_warned_of() -> None:
    with pytest.warns(RuntimeWarning, match="stops everything else of its event loop"):
        assert LoopThread.shared().wait(thread_name()) == "roquet-loop"


async def test_in_a_notebook_which_has_a_loop_anyway_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", asyncio)
    assert LoopThread.shared().wait(thread_name()) == "roquet-loop"
