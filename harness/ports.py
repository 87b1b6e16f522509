"""Free ports of this machine, for servers that are started on them and started again later.

All have five digits, so that proxies can replace an address by another one of the same length. They
lie below those that systems give to connections: a port of such a connection stays taken for a
minute after its end, and a server that comes back would not get it.
"""

import random
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Final

HOST: Final = "127.0.0.1"
PORTS: Final = range(10_002, 30_000)
NEARBY: Final = (-2, 1, 2)
"""From a server's port to others that it may listen on: a broker's second one, that for replicas,
and pages of metrics."""


def free_port(*offsets: int) -> int:
    """A port that nothing listens on, as those nearby and those at these offsets from it."""
    return _choose(1, (*NEARBY, *offsets))[0]


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, as those nearby; none lies near another."""
    return _choose(count, NEARBY)


def _choose(count: int, offsets: Sequence[int]) -> list[int]:
    chance = random.SystemRandom()  # also after `random.seed`, which two programs may call alike
    ports: list[int] = []
    with ExitStack() as sockets:
        while len(ports) < count:
            port = chance.choice(PORTS)
            with suppress(OSError):
                for offset in {0, *offsets}:
                    sockets.enter_context(socket.socket()).bind((HOST, port + offset))
                ports.append(port)
    return ports
