"""Brokers of a group that come back with older files than they had."""

import asyncio
from pathlib import Path

import pytest
from tests.conversation.failover_group import CONTROLLER, TOPIC, Group, group, settled

from roquet.store.config import StoreConfig
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.store import Draft, Store
from simulation.servers import SMALL_FILES

DATA = Path("/data")
EPOCHS = "epochFileCheckpoint"


def log_bytes(running: Group, number: int) -> bytes:
    raw = running.brokers[number].broker.log.store.raw
    return bytes(raw.read(raw.begin, 1 << 20))


@pytest.mark.parametrize("is_restored", [True, False])
async def test_a_master_restored_from_before_its_epoch_does_not_lead_it_again(
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
async def test_a_copy_of_a_damaged_epoch_file_tells_diverged_logs_apart(
    damage: bytes | None,
) -> None:
    async with settled(["a"]) as running:
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


def old_directory(*bodies: str) -> MemoryFiles:
    """A directory that was written where roles are fixed."""
    files = MemoryFiles()
    config = StoreConfig(log_file_size=SMALL_FILES["log_file_size"])
    store = Store.open(DATA, config, files=files, now_ms=0)
    for body in bodies:
        store.append(Draft(TOPIC, 0, body.encode(), b"", 0, store_host=bytes(8)), 0)
    while store.dispatch():
        pass
    store.close(0)
    return files


async def test_a_group_with_fixed_roles_goes_on_under_a_controller_with_its_messages() -> None:
    running = Group()
    running.files[1] = old_directory("a", "b", "c")
    running.files[2] = old_directory("a", "b")  # a replica that was behind
    async with group(3, running=running):
        assert await running.settled(3) == 1
        await running.send_on(["d"])
        assert running.stored(1)[:3] == ["a", "b", "c"]
        assert log_bytes(running, 1) == log_bytes(running, 2) == log_bytes(running, 3)
        await running.kill(1)
        assert await running.settled(2) in {2, 3}
        running.check()


async def test_a_log_of_another_past_does_not_follow_though_it_has_no_epochs() -> None:
    running = Group()
    running.files[1] = old_directory("a", "b", "c")
    running.files[2] = old_directory("a", "x")
    async with group(3, running=running):
        assert await running.settled(2) == 1
        await asyncio.sleep(20)
        assert running.members() == {1, 3}
        assert running.stored(2) == ["a", "x"]


async def test_an_old_broker_that_comes_after_empty_ones_keeps_its_messages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = Group()
    running.files[3] = old_directory("a", "b", "c")
    async with group(3, running=running):
        assert await running.settled(2) in {1, 2}
        await asyncio.sleep(10)
        assert running.stored(3) == ["a", "b", "c"]
        assert "it may have the only copy of its messages" in caplog.text
