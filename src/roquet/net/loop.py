"""Event loop: uvloop where it is installed, asyncio's own elsewhere."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

new_event_loop: Callable[[], asyncio.AbstractEventLoop]
try:
    from uvloop import new_event_loop
except ImportError:  # Windows has no uvloop
    from asyncio import new_event_loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new loop, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
