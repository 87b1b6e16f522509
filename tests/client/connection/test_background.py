"""Background tasks, wakeups and throttled logs."""

import asyncio
import logging

import pytest

from roquet.client.connection.background import (
    BackgroundTasks,
    ErrorLogThrottle,
    Wakeup,
    cancel_and_wait,
)
from roquet.model.errors import ConnectFailed, NotFound, UsageError
from roquet.testing.clock import this_loop


async def fail() -> None:
    raise ValueError("broken")


async def rest() -> None:
    await asyncio.sleep(3600)


async def test_a_task_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    background = BackgroundTasks()
    background.start(fail(), "routes")
    await asyncio.sleep(1)
    assert "routes ended with an error" in caplog.text
    assert "ValueError: broken" in caplog.text


async def test_closing_ends_all_tasks() -> None:
    background = BackgroundTasks()
    task = background.start(rest(), "rest")
    await background.close()
    assert task.cancelled()


async def test_a_task_does_not_cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    await cancel_and_wait(task)
    assert not task.cancelling()


async def test_a_wakeup_ends_a_pause_early() -> None:
    alarm = Wakeup()
    asyncio.get_running_loop().call_later(2, alarm.set)
    assert await alarm.wait(10_000)
    assert this_loop().clock.monotonic_ms() == 2_000
    assert not await alarm.wait(10_000)
    assert this_loop().clock.monotonic_ms() == 12_000


async def test_a_wakeup_set_before_the_wait_is_not_missed() -> None:
    alarm = Wakeup()
    alarm.set()
    assert await alarm.wait(10_000)
    assert this_loop().clock.monotonic_ms() == 0


def test_an_error_is_logged_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    throttle = ErrorLogThrottle("routes")
    for _ in range(3):
        throttle.report("nobody there")
    for _ in range(3):
        throttle.clear()
    throttle.report("gone again")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]


def test_what_is_not_there_yet_is_all_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    throttle = ErrorLogThrottle("share of t")
    throttle.report(NotFound("topic t does not exist yet: waiting for it"))
    expected = "topic t does not exist yet: waiting for it; trying again, this is said once"
    assert caplog.messages == [expected]
    assert throttle.failure == "topic t does not exist yet: waiting for it"


def test_an_error_that_is_a_bug_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    throttle = ErrorLogThrottle("pull of t")
    for error in (ConnectFailed("away"), ValueError("a bug"), ValueError("a bug"), KeyError("b")):
        throttle.report(error)
    assert [record.exc_info is not None for record in caplog.records] == [False, True, True]


def test_an_error_that_passes_soon_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    throttle = ErrorLogThrottle("routes", patience=2)
    for _ in range(3):
        throttle.report("nobody there")
        throttle.report("nobody there")
        throttle.clear()
    assert caplog.records == []
    for _ in range(5):
        throttle.report("nobody there")
    throttle.clear()
    assert len(caplog.records) == 2


@pytest.mark.virtual_time(False)
async def test_a_background_task_may_cancel_all_others() -> None:
    background = BackgroundTasks()
    ended: list[str] = []

    async def last() -> None:
        await asyncio.sleep(0)
        background.cancel()
        await asyncio.sleep(0)
        ended.append("last")

    sleeper = background.start(asyncio.sleep(60), "sleeper")
    await background.start(last(), "last")
    assert ended == ["last"]
    assert sleeper.cancelled()
    assert background.is_idle


async def test_a_failing_loop_is_restarted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background, rounds = BackgroundTasks(), 0

    async def loop() -> None:
        nonlocal rounds
        rounds += 1
        if rounds < 4:
            raise ValueError("poison")

    task = background.supervise(loop, "routes", this_loop().clock)
    await task
    assert rounds == 4
    assert caplog.text.count("routes failed and goes on") == 1
    await background.close()


async def test_what_is_started_after_a_cancellation_ends_at_once() -> None:
    background = BackgroundTasks()
    background.cancel()
    task = background.start(rest(), "rest")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert task.cancelled()
    assert background.is_idle


def test_a_task_in_another_loop_is_refused() -> None:
    background = BackgroundTasks()

    async def start() -> None:
        background.start(fail(), "failing")

    asyncio.run(start())
    with pytest.raises(UsageError, match="another event loop"):
        asyncio.run(start())
