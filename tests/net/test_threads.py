"""Work in threads, seen to its end."""

import asyncio
import threading

import pytest

from roquet.net.threads import in_thread


async def test_a_cancelled_wait_still_waits_for_its_thread() -> None:
    begun, go_on = threading.Event(), threading.Event()
    written: list[str] = []

    def work() -> None:
        begun.set()
        go_on.wait(5)
        written.append("all of it")

    saving = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(begun.wait, 5)
    saving.cancel()
    await asyncio.sleep(0.01)
    assert not saving.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert written == ["all of it"]


async def test_an_error_in_the_thread_is_raised_in_the_caller() -> None:
    def work() -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        await in_thread(work)
