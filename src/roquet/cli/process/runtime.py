"""Runs servers until a signal: what every command that serves has in common."""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

from roquet.net import loop
from roquet.net.log_lines import PrintableFormatter

DESCRIPTORS_MAX: Final = 65_536
"""Enough for every connection and map that one process can serve."""

GC_THRESHOLD: Final = 50_000
"""New objects between two looks for cycles, which serving hardly makes: by default it is 700, and
the looks take a tenth of the time of a pull."""

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

LIFELINE: Final = "ROQUET_LIFELINE"
"""In a child's environment: its input is held open by who started it, and ends with them."""


def log_to_stderr(*, verbose: bool) -> None:
    """Where a program's log goes, and how much of it; a library never decides that."""
    level = logging.INFO if verbose else logging.WARNING
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter())
    logging.basicConfig(level=level, handlers=[handler])


_RECEIVED: Final[list[signal.Signals]] = []
"""The signal that the present program was stopped by, if any."""


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs a program's coroutine on the quickest loop there is; KeyboardInterrupt after Ctrl-C."""
    _RECEIVED.clear()
    _allow_descriptors()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    loop.run(main)
    if signal.SIGINT in _RECEIVED:
        raise KeyboardInterrupt


def _allow_descriptors() -> None:
    """As many open files as the system lets this process have: connections and maps are many."""
    try:
        import resource  # not on Windows
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # macOS has a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def stop_signal() -> asyncio.Event:
    """Set by the first SIGINT or SIGTERM; a second one ends the process at once."""
    running = asyncio.get_running_loop()
    stop = asyncio.Event()

    def ask(received: signal.Signals) -> None:
        _RECEIVED.append(received)
        stop.set()
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    for number in STOP_SIGNALS:
        try:
            running.add_signal_handler(number, ask, number)
        except NotImplementedError:  # Windows: the loop has to be woken
            wake = partial(running.call_soon_threadsafe, ask, number)
            signal.signal(number, lambda *_, wake=wake: wake())
    if os.environ.get(LIFELINE):
        _watch_lifeline(running, stop)
    return stop


def _watch_lifeline(running: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Stop when whoever started this process is gone, however suddenly."""
    line = sys.stdin.fileno()

    def look() -> None:
        if not os.read(line, 1024):
            running.remove_reader(line)
            stop.set()

    with suppress(NotImplementedError):  # Windows: its loop cannot watch a pipe like that
        running.add_reader(line, look)
