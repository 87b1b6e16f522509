"""systemd notifications: a service of Type=notify says that it is ready, alive and stopping.

Each is one datagram to the socket that the environment names. Without that variable nothing is
sent.
"""

import asyncio
import os
import socket
from contextlib import suppress
from typing import Final

from roquet.cli.process.runtime import LIFELINE
from roquet.log_records import logger

log = logger(__name__)

SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG: Final = "WATCHDOG_USEC"
"""Microseconds of silence after which systemd restarts the service."""


async def serve_until(stop: asyncio.Event) -> None:
    """Wait for the event; tell systemd that the service is ready, alive meanwhile, and stopping."""
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
