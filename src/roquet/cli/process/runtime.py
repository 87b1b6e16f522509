"""Runtime of a command: event loop, signals, file descriptor limit, log and systemd notifications.

A service of Type=notify says that it is ready, alive and stopping: each is one datagram to the
socket that the environment names. Without that variable nothing is sent.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from roquet.log_records import logger
from roquet.model.errors import ConfigError
from roquet.net import loop
from roquet.observe.log_levels import apply_log_levels, parse_log_levels
from roquet.observe.log_lines import JsonFormatter, LineFilter, PrintableFormatter

T = TypeVar("T")

log = logger(__name__)

DESCRIPTORS_MAX: Final = 65_536
"""File descriptors: enough for every connection and mapped file of one process."""

GC_THRESHOLD: Final = 50_000
"""New objects between two runs of the cyclic garbage collector. Serving makes hardly any cycles:
with Python's default of 700 the collector takes a tenth of the time of a pull."""

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

LIFELINE: Final = "ROQUET_LIFELINE"
"""Environment variable of a child process: its stdin is a pipe that ends with its parent."""

LOG_FORMAT: Final = "ROQUET_LOG_FORMAT"
"""Environment variable: `json` for one JSON object a line, or `text`."""

LOG_LEVELS: Final = "ROQUET_LOG_LEVELS"
"""Environment variable: levels of loggers, as `INFO,roquet.net:DEBUG`."""

SLOWER: Final = "uvloop not installed, this server is slower: pip install 'roquet[server]'"

SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG: Final = "WATCHDOG_USEC"
"""Microseconds of silence after which systemd restarts the service."""


def log_to_stderr(*, verbose: bool) -> None:
    """Log to stderr: warnings, or with `verbose` also information.

    Strangers cannot fill the disk by lines. The environment says in which form, and may give
    single loggers other levels. Raises ConfigError.
    """
    level = logging.INFO if verbose else logging.WARNING
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(LineFilter())
    handler.setFormatter(_log_formatter(os.environ.get(LOG_FORMAT) or "text"))
    logging.basicConfig(level=level, handlers=[handler])
    if levels := os.environ.get(LOG_LEVELS):
        parse_log_levels(levels, LOG_LEVELS)
        apply_log_levels(levels)


def _log_formatter(name: str) -> logging.Formatter:
    if name == "json":
        return JsonFormatter()
    if name != "text":
        raise ConfigError(f"{LOG_FORMAT}={name[:40]!r} is neither text nor json")
    return PrintableFormatter()


_RECEIVED: Final[list[signal.Signals]] = []
"""The signals that the running program received."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a program's coroutine on the fastest loop; raises KeyboardInterrupt after Ctrl-C."""
    _RECEIVED.clear()
    _allow_descriptors()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    result = loop.run(main)
    if signal.SIGINT in _RECEIVED:
        raise KeyboardInterrupt
    return result


def _allow_descriptors() -> None:
    """Raise the limit of open files as far as the system allows."""
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
    """An event that the first SIGINT or SIGTERM sets; a second one ends the process at once."""
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


async def until_stopped(
    work: Coroutine[Any, Any, None],
    show: Callable[[], object] = lambda: None,
    period_s: float | None = None,
) -> None:
    """Run until the work has ended or a signal asks to stop; its error is raised.

    Each `period_s` seconds, and at the end, `show` is called.
    """
    task = asyncio.create_task(work)
    stop = asyncio.create_task(stop_signal().wait())
    try:
        while not task.done() and not stop.done():
            await asyncio.wait({task, stop}, timeout=period_s, return_when=asyncio.FIRST_COMPLETED)
            show()
    finally:
        stop.cancel()
        task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _watch_lifeline(running: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    pipe = sys.stdin.fileno()

    def check() -> None:
        if not os.read(pipe, 1024):
            running.remove_reader(pipe)
            stop.set()

    with suppress(NotImplementedError):  # Windows: its loop cannot watch a pipe like that
        running.add_reader(pipe, check)


async def serve_until(stop: asyncio.Event) -> None:
    """Wait for the event; tell systemd that the service is ready, alive meanwhile, and stopping.

    Without uvloop the log says that the server is slower, and how to install it.
    """
    if find_spec("uvloop") is None and sys.platform != "win32":
        log.warning("%s", SLOWER)
    notify("READY=1")
    try:
        while not stop.is_set():
            try:
                async with asyncio.timeout(_alive_s()):
                    await stop.wait()
            except TimeoutError:
                notify("WATCHDOG=1")
    finally:
        notify("STOPPING=1")


def notify(state: str) -> None:
    """Send one state; a socket that cannot be reached is logged.

    A child process is no service of its own: its parent would seem to stop whenever it does.
    """
    path = os.environ.get(SOCKET)
    if not path or LIFELINE in os.environ:
        return
    address = f"\0{path[1:]}" if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(state.encode(), address)
    except OSError as error:
        log.warning("systemd cannot be told %s: %s", state, error)


def _alive_s() -> float | None:
    """Seconds between two signs of life, half of what systemd allows; None without a watchdog."""
    with suppress(ValueError):
        if (allowed_us := int(os.environ.get(WATCHDOG) or "0")) > 0:
            return allowed_us / 2_000_000
    return None
