"""Plain functions in daemon threads."""

import asyncio
import contextvars
import threading

import pytest

from roquet.client.connection.threads import run_in_thread

pytestmark = pytest.mark.virtual_time(False)

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO")


async def test_a_functions_result_or_error_is_passed_on() -> None:
    caller = threading.current_thread()
    thread = await run_in_thread(threading.current_thread, "mine")
    assert (thread.name, thread.daemon, thread is caller) == ("mine", True, False)
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(lambda: 1 // 0, "mine")


async def test_a_stop_iteration_is_passed_on_too() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await run_in_thread(lambda: next(iter(())), "mine")


async def test_a_thread_has_its_callers_context() -> None:
    WHO.set("me")
    assert await run_in_thread(WHO.get, "mine") == "me"


def test_a_hanging_thread_does_not_delay_the_programs_end() -> None:
    never = threading.Event()

    async def work() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await run_in_thread(lambda: never.wait(60), "mine")

    asyncio.run(work())  # which joins the executor's threads
    never.set()  # after the loop is closed: the result is dropped
