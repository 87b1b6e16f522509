"""Hosts: whose process is killed runs no more, and nobody else feels it."""

import asyncio

import pytest

from roquet.testing.clock import this_loop
from simulation.hosts import Hosts

pytestmark = pytest.mark.virtual_time


async def test_a_kill_ends_a_hosts_tasks_and_what_they_began() -> None:
    hosts = Hosts(this_loop())
    ended: list[str] = []

    async def work(name: str) -> None:
        child = asyncio.create_task(asyncio.sleep(1_000))
        try:
            await child
        finally:
            ended.append(f"{name} {child.cancelled()}")

    hosts.run("10.0.0.1", work("one"))
    other = hosts.run("10.0.0.2", work("two"))
    await asyncio.sleep(1)
    hosts.kill("10.0.0.1")
    await hosts.wait_ended("10.0.0.1")
    assert ended == ["one True"]
    assert not other.done()
    other.cancel()
    await asyncio.wait([other])


async def test_a_hosts_coroutine_returns_its_result() -> None:
    hosts = Hosts(this_loop())

    async def where() -> str:
        return this_loop().network.this_host()

    assert await hosts.run("10.0.0.7", where()) == "10.0.0.7"
