"""Threads for users' plain functions, which may block for ever.

The event loop's executor has few threads, which also resolve host names, and a program cannot end
while one of them hangs. These are daemon threads, which are never joined.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T], name: str) -> T:
    """Call a function in a thread of its own; return its result or raise its error.

    After a cancellation the function runs on, and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    context = contextvars.copy_context()
    results: list[T] = []
    errors: list[BaseException] = []

    def tell() -> None:
        if not ended.done():
            ended.set_result(None)

    def run() -> None:
        try:
            results.append(context.run(work))
        except BaseException as error:
            errors.append(error)
        try:
            loop.call_soon_threadsafe(tell)
        except RuntimeError:  # the loop is closed
            return

    threading.Thread(target=run, name=name, daemon=True).start()
    await ended
    if errors:
        raise errors.pop()
    return results.pop()
