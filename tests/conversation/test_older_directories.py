"""Brokers of a group that come back with older files than they had."""

import asyncio

import pytest
from tests.conversation.failover_group import CONTROLLER, Group, group

from roquet.testing.clock import in_virtual_time

EPOCHS = "epochFileCheckpoint"


def log_bytes(running: Group, number: int) -> bytes:
    raw = running.brokers[number].broker.log.store.raw
    return bytes(raw.read(raw.begin, 1 << 20))


@pytest.mark.parametrize("is_restored", [True, False])
@in_virtual_time
async def test_a_master_restored_from_before_its_epoch_does_not_lead_that_again(
    *, is_restored: bool
) -> None:
    async with group() as running:
        assert await running.settled(3) == 1
        await running.send_on(["a"])
        backups = {number: running.files[number].copy() for number in (2, 3)}
        await running.kill(1)
        await running.until(lambda: running.master() in {2, 3}, 30)
        await running.start_broker(1)
        leader = await running.settled(3)
        await running.send_on(f"b{number}" for number in range(5))
        await asyncio.sleep(1)
        await running.kill_controller()
        for number in (1, 2, 3):
            await running.kill(number)
        if is_restored:
            running.files[leader] = backups[leader]
        await running.start_controller()
        for number in (1, 2, 3):
            await running.start_broker(number)
        await running.settled(3)
        running.check()


@pytest.mark.parametrize("damage", [b"1\n2\n3", None])
@in_virtual_time
async def test_a_copy_of_a_damaged_epoch_file_tells_diverged_logs_apart(
    damage: bytes | None,
) -> None:
    async with group() as running:
        await running.settled(3)
        await running.send_on(["a"])
        running.part(1, running.host(2), running.host(3), CONTROLLER)
        sending = asyncio.create_task(running.send("never acknowledged", 1))
        await running.until(lambda: running.master() in {2, 3}, 30)
        await sending
        leader = running.master()
        assert leader is not None
        await running.until(lambda: running.members() == {2, 3})
        await running.send_on(["b"])
        await asyncio.sleep(1)
        for number in (5 - leader, leader):
            await running.kill(number)
        files = running.files[leader]
        path = next(path for path in files.contents if path.name == EPOCHS)
        files.remove(path)
        if damage is not None:
            files.replace(path, damage)
        await running.start_broker(leader)
        await asyncio.sleep(5)
        running.network.heal()
        await running.until(lambda: {1, leader} <= running.members())
        await running.send_on(["c"])
        assert log_bytes(running, 1) == log_bytes(running, leader)
        await running.kill(leader)
        await running.start_broker(5 - leader)
        assert await running.settled(2) != leader
        running.check()
