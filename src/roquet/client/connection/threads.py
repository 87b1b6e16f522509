"""Threads of their own: for plain functions of users, which may block, and may never return.

The event loop's own threads are few, look up hosts besides, and hold up the end of a program for
as long as one of them hangs. Nobody waits for these.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T], name: str) -> T:
    """What a function gives, or raises, that runs in a thread of its own.

    Whoever is cancelled waits no more; the function runs on, and nobody hears how it ends.
    """
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    context = contextvars.copy_context()
    found: list[T] = []
    faults: list[BaseException] = []

    def tell() -> None:
        if not ended.done():
            ended.set_result(None)

    def run() -> None:
        try:
            found.append(context.run(work))
        except BaseException as error:
            faults.append(error)
        try:
            loop.call_soon_threadsafe(tell)
        except RuntimeError:  # the loop has gone
            return

    threading.Thread(target=run, name=name, daemon=True).start()
    await ended
    if faults:
        raise faults.pop()
    return found.pop()
