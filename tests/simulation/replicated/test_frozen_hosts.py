"""Frozen hosts: nothing of them runs, everything of others does, and it all comes afterwards."""

import asyncio

import pytest
from tests.testing.conftest import pair

from roquet.testing.clock import this_loop
from simulation.hosts import Hosts
from simulation.replicated.frozen_hosts import FrozenHosts

pytestmark = pytest.mark.virtual_time


class Ticker:
    """Counts, ten times a second."""

    def __init__(self) -> None:
        self.ticks: list[int] = []

    async def live(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.ticks.append(this_loop().clock.monotonic_ms())


async def test_a_frozen_host_stands_still_while_another_goes_on() -> None:
    loop = this_loop()
    hosts, frozen = Hosts(loop), FrozenHosts(loop)
    one, other = Ticker(), Ticker()
    hosts.run("one", one.live())
    hosts.run("other", other.live())
    await asyncio.sleep(1.05)
    frozen.freeze("one")
    assert frozen.hosts == ["one"]
    await asyncio.sleep(5)
    assert (len(one.ticks), len(other.ticks)) == (10, 60)
    frozen.thaw("one")
    await asyncio.sleep(1)
    assert frozen.hosts == []
    assert one.ticks[10] == 6_050, "what was due runs at once"
    assert len(one.ticks) == 20


async def test_bytes_for_a_frozen_host_wait_and_come_in_order() -> None:
    loop = this_loop()
    near, far = await pair(loop.network)
    frozen = FrozenHosts(loop)
    near.transport.write(b"before")
    await asyncio.sleep(0.1)
    frozen.freeze("10.0.0.1")
    near.transport.write(b"first")
    await asyncio.sleep(1)
    near.transport.write(b"second")
    await asyncio.sleep(1)
    assert far.text == b"before"
    frozen.thaw("10.0.0.1")
    await asyncio.sleep(0.1)
    assert far.text == b"beforefirstsecond"


async def test_timers_that_are_cancelled_meanwhile_never_ring() -> None:
    loop = this_loop()
    hosts, frozen = Hosts(loop), FrozenHosts(loop)
    rung: list[str] = []

    async def set_timers() -> list[asyncio.TimerHandle]:
        return [loop.call_later(seconds, rung.append, f"{seconds}") for seconds in (1, 2, 9)]

    timers = await hosts.run("one", set_timers())
    frozen.freeze("one")
    await asyncio.sleep(3)
    timers[1].cancel()
    assert rung == []
    frozen.thaw("one")
    await asyncio.sleep(0.01)
    assert rung == ["1"]
    await asyncio.sleep(7)
    assert rung == ["1", "9"]


async def test_two_frozen_hosts_thaw_one_by_one_and_twice_is_once() -> None:
    loop = this_loop()
    hosts, frozen = Hosts(loop), FrozenHosts(loop)
    one, other = Ticker(), Ticker()
    hosts.run("one", one.live())
    hosts.run("other", other.live())
    for host in ("one", "other", "one"):
        frozen.freeze(host)
    await asyncio.sleep(1)
    frozen.thaw("one")
    frozen.thaw("one")
    await asyncio.sleep(1.05)
    counts = len(one.ticks), len(other.ticks)
    frozen.thaw("other")
    await asyncio.sleep(0.55)
    assert (*counts, len(other.ticks)) == (10, 0, 5)
