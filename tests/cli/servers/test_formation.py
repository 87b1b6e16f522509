"""A start waits until messages are taken, and no longer."""

import asyncio

import pytest
from tests.admin.elected_group import operate
from tests.conversation.failover_group import CONTROLLER, Group, group

from roquet.cli.servers.formation import FORMATION_TIMEOUT_S, Formation, formed
from roquet.testing.clock import in_virtual_time

CONTROLLERS = [f"{CONTROLLER}:9878"]


async def formation(running: Group, *names: str, stopped: bool = False) -> Formation:
    stop = asyncio.Event()
    if stopped:
        stop.set()
    return await operate(running, lambda admin: formed(admin, names, CONTROLLERS, 2, stop))


@in_virtual_time
async def test_it_ends_once_messages_are_taken() -> None:
    async with group(3) as running:
        members, unformed = await formation(running, "g")
        assert [one.is_master for one in members.values()] == [True, False, False]
        assert unformed == []
        assert (await running.send("a")).code == 0


@in_virtual_time
async def test_a_group_that_does_not_form_is_waited_for_so_long() -> None:
    async with group(1) as running:
        began = running.loop.time()
        members, unformed = await formation(running, "h", "g")
        assert running.loop.time() - began == pytest.approx(FORMATION_TIMEOUT_S, abs=1)
        assert [one.broker_id for one in members.values()] == [1], "g is asked about all the same"
        assert unformed == ["h", "g"]


@in_virtual_time
async def test_a_stop_signal_ends_the_wait() -> None:
    async with group(1) as running:
        assert await formation(running, "h", stopped=True) == ({}, [])
