import asyncio
import threading
from collections.abc import AsyncIterator

from roquet.observe import stacks
from roquet.observe.stacks import dump_stacks as told


async def inner() -> None:
    await asyncio.sleep(100)


async def outer() -> None:
    await inner()


async def test_a_waiting_task_is_dumped_with_all_its_frames() -> None:
    task = asyncio.create_task(outer(), name="the-task")
    await asyncio.sleep(0)
    text = told()
    task.cancel()
    lines = [line for line in text.splitlines() if line.startswith("the-task")]
    assert "TASK STATE: WAITING" in lines[0]
    names = [line.split("(")[0].split()[-1] for line in lines[1:]]
    assert names[-2:] == ["inner", "outer"]
    assert names.index("inner") < names.index("outer"), "the innermost one first"


async def test_threads_are_dumped_by_name() -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait, name="the-thread", daemon=True)
    thread.start()
    text = told()
    go.set()
    thread.join()
    assert "the-thread" in text
    assert "wait(" in text


async def test_tasks_beyond_the_limit_are_counted(monkeypatch: object) -> None:
    tasks = [asyncio.create_task(inner()) for _ in range(stacks.TASKS_MAX + 5)]
    await asyncio.sleep(0)
    text = told()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert "tasks more" in text


async def test_a_task_in_an_async_generator_is_dumped() -> None:
    async def numbers() -> AsyncIterator[int]:
        await inner()
        yield 1

    async def reads() -> None:
        async for _ in numbers():
            pass

    task = asyncio.create_task(reads(), name="the-reader")
    await asyncio.sleep(0)
    assert "reads(" in told()
    task.cancel()
