"""Members that join and leave the sync-state set while messages are acknowledged."""

import asyncio
from collections.abc import Callable

from tests.conversation.failover_group import CONTROLLER, Group, group

from roquet.broker.replication.confirmation.sync_set import SyncSet
from roquet.controller.state_store.interface import ControllerIdentity
from roquet.store.store import Store
from roquet.wire.codes import ResponseCode

CAUGHT_UP_MS = 15_000
"""Replicas that have caught up within this time are wanted in the set."""


def set_of(running: Group, number: int) -> SyncSet:
    """The sync-state set as a broker knows it."""
    mode = running.brokers[number].broker.replication.controller_mode
    assert mode is not None
    return mode.sync_set


def log_of(running: Group, number: int) -> Store:
    return running.brokers[number].broker.log.store


async def stored_set(running: Group) -> frozenset[int]:
    """The sync-state set as the controller has stored it."""
    view = await running.state.acquire(ControllerIdentity("reader", "10.0.3.1:1"))
    assert view.term is not None
    in_sync = (await running.state.load(view.term))["g"].group.in_sync
    assert in_sync is not None
    return in_sync


async def until_stored(running: Group, condition: Callable[[frozenset[int]], bool]) -> None:
    """Wait until the controller has stored such a set."""
    async with asyncio.timeout(10):
        while not condition(await stored_set(running)):
            await running.loop.clock.sleep(10)


async def break_connection(running: Group, one: int, other: int) -> None:
    """Reset a connection of the master; the replica comes back by itself."""
    wanted = set_of(running, one).wanted
    running.network.drop(running.host(one), running.host(other))
    await running.until(lambda: other not in wanted(CAUGHT_UP_MS), 3)
    await running.until(lambda: other in wanted(CAUGHT_UP_MS), 3)


def part(running: Group, one: int, other: int) -> None:
    running.network.partition(running.host(one), running.host(other))
    running.network.drop(running.host(one), running.host(other))


async def lose_power(running: Group, number: int) -> None:
    """A broker loses its power, and with it the last message of its log; then it is back."""
    await running.kill(number)
    running.lose_tail(number, 1)
    running.loop.executor_ms.clear()
    running.network.slow(CONTROLLER, 0, 0)
    running.network.heal()
    await running.start_broker(number)
    await running.settled(2)


async def test_who_joins_while_another_leaves_has_what_is_acknowledged_in_between() -> None:
    async with group() as running:
        assert await running.settled(3) == 1
        await running.send_on(["a"])
        part(running, 1, 3)
        await running.until(lambda: running.members() == {1, 2})
        # 3 comes back to the master before the controller hears of it again.
        running.network.partition(running.host(3), CONTROLLER)
        running.network.drop(running.host(3), CONTROLLER)
        await running.send_on(["b"])
        running.network.rejoin(running.host(1), running.host(3))
        await running.until(lambda: 3 in set_of(running, 1).wanted(CAUGHT_UP_MS))
        running.network.rejoin(running.host(3), CONTROLLER)
        await running.send_on(["c"])
        assert running.members() == {1, 2}
        running.loop.executor_ms[running.host(1)] = 3_000  # a slow disk
        await break_connection(running, 1, 2)
        running.network.partition_one_way(running.host(1), running.host(3))
        assert (await running.send("between", 1)).code == ResponseCode.SUCCESS
        part(running, 1, 2)
        await until_stored(running, lambda members: 2 not in members)
        await running.kill(1)
        running.network.drop(running.host(1), running.host(3))
        running.network.heal()
        await asyncio.sleep(20)
        if running.master() is None:  # 1 was alone in the set, and has everything
            await running.start_broker(1)
            await running.settled(3)
        running.check()


async def test_a_master_that_loses_its_power_once_it_is_alone_lacks_nothing() -> None:
    """A flush covers what is in the log as it begins, and 2 acknowledges one more message."""
    async with group(2, flush_interval=60_000) as running:
        assert await running.settled(2) == 1
        await running.send_on(["a"])
        store = log_of(running, 1)
        running.loop.executor_ms[running.host(1)] = 1_500
        running.loop.executor_share = lambda: 0.0
        await running.send_on(["b"])  # something to be flushed
        await break_connection(running, 1, 2)
        assert (await running.send("between", 1)).code == ResponseCode.SUCCESS
        part(running, 1, 2)
        await until_stored(running, lambda members: members == {1})
        assert store.flushed_position >= set_of(running, 1).acknowledged_mark.value
        if store.flushed_position < store.raw.end:
            await lose_power(running, 1)
        running.check()
