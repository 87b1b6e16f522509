"""Cost of a request on its way through net: microseconds of CPU, as JSON.

`served`: bytes in, bytes out of a server's connection whose handler does nothing, without a socket;
by the form of the header and the number of requests that one read brings. `signed`: the same with
access control, by a user whom a policy allows it. `counted`: as `served`, with metrics. `talked`:
both ends of calls over a real socket in one process, by the number of calls in flight. `waited`:
advancing a mark, as every message does.
"""

import argparse
import asyncio
import json
import platform
import time
import timeit
from collections.abc import Callable
from typing import NamedTuple

from roquet.access.guard import AccessGuard, AccessRules
from roquet.access.guarded_router import GuardedRouter
from roquet.model.access import AccessTables, PolicyType, User
from roquet.net.async_watermark import AsyncWatermark
from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.connection.server_connection import ServerConnection
from roquet.net.limits.fair_share import FREQUENT_CODES
from roquet.net.loop import run
from roquet.net.pool import ChannelPool
from roquet.net.request_meter import RequestMeter
from roquet.net.router import Peer, Router
from roquet.net.server import Server
from roquet.rules.access.changes import change_acl, policy_entry
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.codes import SerializeType
from roquet.wire.fields import encode_call
from roquet.wire.signing import Credentials, Signer


class Scale(NamedTuple):
    """How much is measured: requests of a repetition, and repetitions."""

    requests: int
    repeats: int


SEND = Send(
    producer_group="flights",
    topic="Flights",
    queue_id=3,
    born_timestamp=1_700_000_000_000,
    properties="KEYS\x01N14228\x02UNIQ_KEY\x01" + "0A" * 16 + "\x02TAGS\x01UA\x02WAIT\x01true\x02",
    body=b"x" * 128,
)


KEYS = Credentials(access_key="flights", secret_key="a secret that nobody guesses")

Encode = Callable[..., bytes]
"""Makes the frame of a call."""


class Nowhere(asyncio.Transport):
    """A transport that takes everything, and knows whether it shall bring more."""

    is_paused = False

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Forget it."""

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Whatever."""


def stored(call: Send, _: Peer) -> SendReply:
    """The answer to a send, without a store."""
    return SendReply(msg_id="0A" * 16, queue_id=call.queue_id, queue_offset=12_345)


def guarded() -> GuardedRouter:
    """A router with access control, at which SEND is allowed to the user of KEYS."""
    entry = policy_entry(f"Topic:{SEND.topic}", ["Pub"], None, "Allow")
    user = User(name=KEYS.access_key, password=KEYS.secret_key)
    tables = AccessTables(users={user.name: user})
    tables = change_acl(tables, user.name, [(PolicyType.CUSTOM, [entry])])
    rules = AccessRules(cluster="c", checks_policies=True)
    return GuardedRouter(AccessGuard(lambda: tables, rules, SYSTEM_CLOCK.now_ms))


async def served(
    router: Router, form: int, pipelined: int, scale: Scale, encode: Encode = encode_call
) -> float:
    """Microseconds a request, when each read brings so many."""
    guest = ServerConnection(router.dispatch, SYSTEM_CLOCK, lambda _: None)
    transport = Nowhere({"peername": ("127.0.0.1", 1)})
    guest.connection_made(transport)
    chunk = encode(SEND, opaque=1, serialize_type=form) * pipelined
    rounds = max(1, scale.requests // 20 // pipelined)
    times = []
    for _ in range(scale.repeats * 20):
        began = time.perf_counter()
        for _ in range(rounds):
            guest.data_received(chunk)
            while transport.is_paused:  # noqa: ASYNC110 - as after a long turn: others come first
                await asyncio.sleep(0)
        times.append(time.perf_counter() - began)
    return round(min(times) / rounds / pipelined * 1e6, 2)


async def talked(router: Router, in_flight: int, scale: Scale) -> float:
    """Microseconds a call of client and server together, with so many calls in flight."""

    async def talk(pool: ChannelPool, address: str) -> None:
        for _ in range(scale.requests // in_flight):
            await pool.call(address, SEND)

    async with Server(router, host="127.0.0.1") as server, ChannelPool() as pool:
        address = f"127.0.0.1:{server.port}"
        costs = []
        for _ in range(scale.repeats):
            began = time.process_time()
            await asyncio.gather(*(talk(pool, address) for _ in range(in_flight)))
            costs.append(time.process_time() - began)
    return round(min(costs) / scale.requests * 1e6, 2)


async def waited(waiting: int, scale: Scale) -> float:
    """Microseconds to advance a mark for which so many wait, none of them released."""
    mark = AsyncWatermark()
    far = SYSTEM_CLOCK.monotonic_ms() + 60_000
    tasks = [asyncio.create_task(mark.reach(10**9, far)) for _ in range(waiting)]
    await asyncio.sleep(0)
    values = iter(range(scale.requests * scale.repeats))
    times = timeit.repeat(
        lambda: mark.advance(next(values)), number=scale.requests, repeat=scale.repeats
    )
    mark.release()
    await asyncio.gather(*tasks)
    return round(min(times) / scale.requests * 1e6, 3)


async def measured(scale: Scale) -> dict[str, object]:
    """Everything, one after the other."""
    router, checking, counting = Router(), guarded(), Router()
    counting.meter = RequestMeter(SYSTEM_CLOCK, FREQUENT_CODES)
    for each in (router, checking, counting):
        each.add(Send, stored)
    sign = Signer(KEYS).encode_call
    forms, counts = tuple(SerializeType), (1, 16, 64)
    return {
        "served": {f.name: {n: await served(router, f, n, scale) for n in counts} for f in forms},
        "signed": {
            f.name: {n: await served(checking, f, n, scale, sign) for n in counts} for f in forms
        },
        "counted": {
            f.name: {n: await served(counting, f, n, scale) for n in counts} for f in forms
        },
        "talked": {count: await talked(router, count, scale) for count in (1, 64)},
        "waited": {count: await waited(count, scale) for count in (0, 100)},
    }


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000, help="of one repetition")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    found = run(measured(Scale(options.requests, options.repeats)))
    print(json.dumps({"python": platform.python_version(), "microseconds": found}, indent=2))


if __name__ == "__main__":
    main()
