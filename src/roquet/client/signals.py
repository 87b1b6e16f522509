"""What is done on SIGTERM, where nobody else has a say in it: consumers hand out nothing more."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_AT_SIGTERM: Final[dict[asyncio.AbstractEventLoop, list[Callable[[], object]]]] = {}
"""A loop has one handler, and may run many consumers."""


@contextmanager
def on_sigterm(act: Callable[[], object]) -> Iterator[None]:
    """Act on SIGTERM instead of dying, where nobody else has a say in it."""
    loop = asyncio.get_running_loop()
    if loop not in _AT_SIGTERM and not _handle_sigterm(loop):
        yield
        return
    acts = _AT_SIGTERM.setdefault(loop, [])
    acts.append(act)
    try:
        yield
    finally:
        acts.remove(act)
        if not acts:
            del _AT_SIGTERM[loop]
            loop.remove_signal_handler(signal.SIGTERM)


def _handle_sigterm(loop: asyncio.AbstractEventLoop) -> bool:
    """Have the loop hear of SIGTERM; False when that is not ours to do."""
    if threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return False
    try:
        loop.add_signal_handler(signal.SIGTERM, _sigterm, loop)
    except NotImplementedError:  # Windows
        return False
    return True


def _sigterm(loop: asyncio.AbstractEventLoop) -> None:
    for act in tuple(_AT_SIGTERM.get(loop, ())):
        act()
