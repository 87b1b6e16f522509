"""One channel for each address, in virtual time."""

import asyncio
import contextvars
import os
from itertools import pairwise

import pytest

from roquet.model.errors import CallTimeout, ConnectFailed, UsageError
from roquet.net.channel import Channel
from roquet.net.loop import CURRENT_PROCESS
from roquet.net.pool import BACK_OFF_MS, BACK_OFF_MS_MAX, IDLE_MS, ChannelPool
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.testing.clock import this_loop
from roquet.wire.calls.route import GetKV, GetRoute, PutKV

pytestmark = pytest.mark.virtual_time

ECHO = GetKV(namespace="echo", key="k")
PORT = 10911
ADDRESS = f"127.0.0.1:{PORT}"


def new_server(router: Router) -> Server:
    return Server(router, port=PORT, clock=this_loop().clock)


def new_pool() -> ChannelPool:
    return ChannelPool(clock=this_loop().clock)


async def test_many_callers_share_one_connection(router: Router) -> None:
    this_loop().network.delay(20, 20)
    made: list[Channel] = []
    async with new_server(router) as server, new_pool() as pool:
        pool.on_connect(made.append)
        replies = await asyncio.gather(*(pool.call(ADDRESS, ECHO) for _ in range(50)))
        assert [reply.value for reply in replies] == ["k"] * 50
        assert len(server.peers) == len(made) == 1
        assert await pool.get(ADDRESS) is made[0]


async def test_a_server_of_this_process_is_called_without_a_socket(
    router: Router, kept: list[str]
) -> None:
    this_loop().network.delay(20, 20)
    clock, large = this_loop().clock, "v" * 300_000
    async with new_server(router) as server, new_pool() as pool:
        pool.local = {"10.9.9.9:1": server}
        begun_ms = clock.monotonic_ms()
        assert (await pool.call("10.9.9.9:1", ECHO)).value == "k"
        for _ in range(5):
            await pool.call("10.9.9.9:1", PutKV(namespace="n", key="k", value=large))
        assert clock.monotonic_ms() == begun_ms
        assert kept == [large] * 5
        (peer,) = server.peers
        assert peer.address == "127.0.0.1:0"
        await server.stop()
        with pytest.raises(ConnectFailed):
            await pool.call("10.9.9.9:1", ECHO)


async def test_a_caller_that_leaves_does_not_take_the_connection_along(router: Router) -> None:
    this_loop().network.delay(20, 20)
    async with new_server(router), new_pool() as pool:
        leaves, stays = (asyncio.create_task(pool.call(ADDRESS, ECHO)) for _ in range(2))
        await asyncio.sleep(0.01)
        leaves.cancel()
        assert (await stays).value == "k"


async def test_a_oneway_call_connects_too(router: Router, kept: list[str]) -> None:
    async with new_server(router), new_pool() as pool:
        await pool.oneway(ADDRESS, PutKV(namespace="n", key="k", value="v"))
        await pool.call(ADDRESS, ECHO)
    assert kept == ["v"]


async def test_after_a_failure_the_address_is_left_alone_for_longer_and_longer() -> None:
    clock, pool = this_loop().clock, new_pool()
    attempts: list[int] = []
    while clock.monotonic_ms() < 60_000:
        with pytest.raises(ConnectFailed, match=ADDRESS) as caught:
            await pool.call(ADDRESS, ECHO)
        assert caught.value.definite
        if "next attempt" not in str(caught.value):
            attempts.append(clock.monotonic_ms())
        await clock.sleep(10)
    pauses = [after - before for before, after in pairwise(attempts)]
    assert pauses[0] == pytest.approx(BACK_OFF_MS, abs=10)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(BACK_OFF_MS_MAX, abs=10)


async def test_a_server_that_comes_later_is_found(router: Router) -> None:
    clock = this_loop().clock
    async with new_pool() as pool:
        with pytest.raises(ConnectFailed, match="cannot connect"):
            await pool.call(ADDRESS, ECHO)
        async with new_server(router):
            with pytest.raises(ConnectFailed, match="next attempt within 100 ms"):
                await pool.call(ADDRESS, ECHO)
            await clock.sleep(BACK_OFF_MS)
            assert (await pool.call(ADDRESS, ECHO)).value == "k"
        async with new_server(router):  # a success has made up for the failure
            assert (await pool.call(ADDRESS, ECHO)).value == "k"


async def test_a_lost_connection_is_made_again(router: Router) -> None:
    network = this_loop().network
    made: list[Channel] = []
    async with new_server(router), new_pool() as pool:
        pool.on_connect(made.append)
        await pool.call(ADDRESS, ECHO)
        network.drop("127.0.0.1", "127.0.0.1")
        await asyncio.sleep(0.001)
        assert (await pool.call(ADDRESS, ECHO)).value == "k"
    assert [channel.closed for channel in made] == [True, True]


async def test_a_silent_connection_is_not_trusted(router: Router) -> None:
    clock = this_loop().clock
    made: list[Channel] = []
    async with new_server(router), new_pool() as pool:
        pool.on_connect(made.append)
        await pool.call(ADDRESS, ECHO)
        await clock.sleep(IDLE_MS - 1)
        await pool.call(ADDRESS, ECHO)
        assert len(made) == 1
        await clock.sleep(IDLE_MS)
        await pool.call(ADDRESS, ECHO)
        assert [channel.closed for channel in made] == [True, False]


async def test_the_time_of_a_call_includes_connecting(router: Router) -> None:
    loop = this_loop()
    async with new_pool() as pool:
        loop.network.partition("127.0.0.1", "10.0.0.1")
        with pytest.raises(ConnectFailed, match=r"no connection to 10\.0\.0\.1:1 within 800 ms"):
            await pool.call("10.0.0.1:1", ECHO, timeout_ms=800)
        assert loop.clock.monotonic_ms() == 800
    async with new_server(router), new_pool() as pool:
        began = loop.clock.monotonic_ms()
        loop.network.delay(200, 200)
        with pytest.raises(CallTimeout):
            await pool.call(ADDRESS, GetRoute(topic="5000"), timeout_ms=1_000)
        assert loop.clock.monotonic_ms() - began == 1_000


async def test_two_addresses_are_two_connections(router: Router) -> None:
    loop = this_loop()
    with loop.network.host("10.0.0.2"):
        second = new_server(router)
        await second.start()
    async with new_server(router) as first, new_pool() as pool:
        await pool.call(ADDRESS, ECHO)
        await pool.call(f"10.0.0.2:{PORT}", ECHO)
        assert [len(first.peers), len(second.peers)] == [1, 1]
        await second.stop()


async def test_a_closed_pool_is_closed(router: Router) -> None:
    this_loop().network.delay(50, 50)
    async with new_server(router):
        pool = new_pool()
        channel = await pool.get(ADDRESS)
        waits = asyncio.create_task(pool.call("127.0.0.1:1", ECHO))
        await asyncio.sleep(0)
        await pool.close()
        assert channel.closed
        with pytest.raises(UsageError, match="closed: make a new one"):
            await pool.call(ADDRESS, ECHO)
        with pytest.raises(ConnectFailed, match="the client was closed"):
            await waits


async def test_an_invalid_address_is_named_in_the_error() -> None:
    with pytest.raises(UsageError, match="'nowhere' is not an address"):
        await new_pool().call("nowhere", ECHO)


async def test_a_forked_process_needs_a_client_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = new_pool()
    mother = os.getpid()
    monkeypatch.setattr(CURRENT_PROCESS, "pid", mother + 1)
    with pytest.raises(UsageError, match=f"made in process {mother} .* after the fork"):
        await pool.call(ADDRESS, ECHO)


def test_another_event_loop_needs_a_client_of_its_own() -> None:
    pool = ChannelPool()

    async def call() -> None:
        with pytest.raises(ConnectFailed):
            await pool.get("127.0.0.1:1")

    asyncio.run(call())
    with pytest.raises(UsageError, match="another event loop, which is closed: make a client in"):
        asyncio.run(pool.get("127.0.0.1:1"))


WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")


async def test_what_servers_call_does_not_run_in_the_context_of_whoever_connected(
    router: Router,
) -> None:
    seen: list[str] = []

    async def use() -> None:
        WHO.set("a caller")
        await pool.get(ADDRESS)

    async with new_server(router), new_pool() as pool:
        pool.on_connect(lambda channel: seen.append(WHO.get()))
        await asyncio.create_task(use())
    assert seen == ["nobody"]
