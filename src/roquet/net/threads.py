"""Work in a thread that whoever asked for it sees end, even when cancelled meanwhile.

A thread cannot be ended. If a stop left it behind, it would write a file beside the last save.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Do it in a thread, and give its result; returns, or raises, no sooner than it has ended."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
