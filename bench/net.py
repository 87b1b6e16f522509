"""What a request costs on its way through net: microseconds of CPU, as JSON.

`served`: bytes in, bytes out of a server's connection whose handler does nothing, without a socket;
by the form of the header and the number of requests that one read brings. `talked`: both ends of
calls over a real socket in one process, by the number of calls in flight. `waited`: advancing a
mark, as every message does.
"""

import asyncio
import json
import platform
import sys
import time
import timeit
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.guest import Guest
from roquet.net.loop import run
from roquet.net.pool import Pool
from roquet.net.router import Peer, Router
from roquet.net.server import Server
from roquet.net.waiting import Mark
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.codes import SerializeType
from roquet.wire.fields import encode_call

REQUESTS = 20_000
REPEATS = 5

SEND = Send(
    producer_group="flights",
    topic="Flights",
    queue_id=3,
    born_timestamp=1_700_000_000_000,
    properties="KEYS\x01N14228\x02UNIQ_KEY\x01" + "0A" * 16 + "\x02TAGS\x01UA\x02WAIT\x01true\x02",
    body=b"x" * 128,
)


class Nowhere(asyncio.Transport):
    """Takes everything."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Forget it."""

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Whatever."""


def stored(call: Send, _: Peer) -> SendReply:
    """The answer to a send, without a store."""
    return SendReply(msg_id="0A" * 16, queue_id=call.queue_id, queue_offset=12_345)


async def served(router: Router, form: int, pipelined: int) -> float:
    """Microseconds a request, when each read brings so many."""
    guest = Guest(router.dispatch, SYSTEM_CLOCK, lambda _: None)
    guest.connection_made(Nowhere({"peername": ("127.0.0.1", 1)}))
    chunk = encode_call(SEND, opaque=1, serialize_type=form) * pipelined
    rounds = 1_000 // pipelined
    times = timeit.repeat(lambda: guest.data_received(chunk), number=rounds, repeat=REPEATS * 20)
    return round(min(times) / rounds / pipelined * 1e6, 2)


async def talked(router: Router, in_flight: int) -> float:
    """Microseconds a call of client and server together, with so many calls in flight."""

    async def talk(pool: Pool, address: str) -> None:
        for _ in range(REQUESTS // in_flight):
            await pool.call(address, SEND)

    async with Server(router, host="127.0.0.1") as server, Pool() as pool:
        address = f"127.0.0.1:{server.port}"
        costs = []
        for _ in range(REPEATS):
            began = time.process_time()
            await asyncio.gather(*(talk(pool, address) for _ in range(in_flight)))
            costs.append(time.process_time() - began)
    return round(min(costs) / REQUESTS * 1e6, 2)


async def waited(waiting: int) -> float:
    """Microseconds to advance a mark for which so many wait, none of them released."""
    mark = Mark()
    far = SYSTEM_CLOCK.monotonic_ms() + 60_000
    tasks = [asyncio.create_task(mark.reach(10**9, far)) for _ in range(waiting)]
    await asyncio.sleep(0)
    values = iter(range(REQUESTS * REPEATS))
    times = timeit.repeat(lambda: mark.advance(next(values)), number=REQUESTS, repeat=REPEATS)
    mark.release()
    await asyncio.gather(*tasks)
    return round(min(times) / REQUESTS * 1e6, 3)


async def measured() -> dict[str, object]:
    """Everything, one after the other."""
    router = Router()
    router.add(Send, stored)
    return {
        "served": {
            form.name: {count: await served(router, form, count) for count in (1, 16, 64)}
            for form in SerializeType
        },
        "talked": {count: await talked(router, count) for count in (1, 64)},
        "waited": {count: await waited(count) for count in (0, 100)},
    }


def main() -> None:
    """Print one JSON object."""
    found = run(measured())
    print(json.dumps({"python": platform.python_version(), "microseconds": found}, indent=2))


if __name__ == "__main__":
    main()
