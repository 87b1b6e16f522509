"""Threads: work in a thread that the caller waits for, even when it is cancelled meanwhile.

A thread cannot be cancelled. If a stop did not wait for it, it would write a file after the last
save.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread and return its result; returns or raises only after it has ended."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
