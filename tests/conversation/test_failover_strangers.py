"""Processes that are no brokers of the group: of another cluster, another life, a copied directory.

Each was pointed at the controller of a group that has its name, with a directory of its own.
"""

import asyncio
from copy import deepcopy
from pathlib import Path

import pytest
from tests.conversation.failover_group import CONTROLLER, NAMESRV, Group, group

from roquet.model.epoch import EpochEntry
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.replication.epoch_file import encode_epoch_file
from roquet.testing.clock import in_virtual_time

IDENTITY = Path("/data/brokerIdentity")
EPOCHS = Path("/data/epochFileCheckpoint")


def broker_of_another_group(cluster: str) -> MemoryFiles:
    """The directory of broker 2 of a group of the same name, with three messages."""
    found: list[MemoryFiles] = []

    @in_virtual_time
    async def live() -> None:
        async with group(2, cluster_name=cluster) as running:
            await running.settled(2)
            await running.send_on(["f1", "f2", "f3"])
            await asyncio.sleep(1)
            await running.kill(2)
            found.append(running.files[2])

    live()
    return found[0]


def rename(files: MemoryFiles, identity: str) -> MemoryFiles:
    """A copy of a broker's directory, as another one's."""
    copy = files.copy()
    copy.replace(IDENTITY, identity.encode())
    return copy


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        ("x", "the group g is of cluster c, not x: give this broker another brokerName"),
        ("c", "the logs are of different pasts, although their epochs are equal"),
    ],
)
def test_a_new_broker_with_the_log_of_another_group_does_not_join(
    cluster: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = broker_of_another_group(cluster)

    @in_virtual_time
    async def scene() -> None:
        async with group() as running:
            assert await running.settled(3) == 1
            await running.send_on(["m1", "m2", "m3"])
            running.files[4] = rename(foreign, f"{cluster}#g#4")
            await running.start_broker(4, cluster_name=cluster)
            await asyncio.sleep(20)
            assert running.members() == {1, 2, 3}
            await running.send_on(["m4"])
            assert "m4.0" not in running.stored(4), "nothing is copied on top of another log"
            running.check()

    scene()
    assert caplog.text.count(why) == 1


@pytest.mark.parametrize("cluster", ["x", "c"])
def test_a_broker_of_another_group_does_not_lead_in_the_place_of_one_with_its_id(
    cluster: str,
) -> None:
    foreign = broker_of_another_group(cluster)

    @in_virtual_time
    async def scene() -> None:
        async with group() as running:
            assert await running.settled(3) == 1
            await running.send_on(["m1", "m2", "m3"])
            await running.kill(2)
            await running.until(lambda: running.members() == {1, 3})
            running.files[4] = foreign
            await running.start_broker(4, cluster_name=cluster)
            await asyncio.sleep(10)
            await running.send_on(["m4"])
            await running.kill(1)
            assert await running.settled(1) == 3
            running.check()

    scene()


def test_a_stray_broker_of_a_later_epoch_stops_no_group(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def scene() -> None:
        async with group() as running:
            assert await running.settled(3) == 1
            await running.send_on(["a"])
            stray = rename(running.files[3], "x#g#7")
            stray.replace(EPOCHS, encode_epoch_file((EpochEntry(50, 0),)))
            running.files[4] = stray
            await running.start_broker(4, cluster_name="x")
            await asyncio.sleep(10)
            assert running.master() == 1
            await running.send_on(["b"])

    scene()
    assert "nobody is elected" not in caplog.text


def masters_by_epoch(running: Group, found: dict[int, set[int]]) -> dict[int, set[int]]:
    """Note which brokers take messages now, by the epoch in which they do."""
    for number, server in running.brokers.items():
        role = server.broker.replication.role.current
        if role.is_active:
            found.setdefault(role.epoch, set()).add(number)
    return found


def test_a_copy_of_a_masters_directory_waits_until_the_original_is_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @in_virtual_time
    async def scene() -> None:
        async with group(1, min_in_sync_replicas=1) as running:
            assert await running.settled(1) == 1
            await running.send_on(["a"])
            running.files[4] = running.files[1].copy()
            await running.start_broker(4)
            leading: dict[int, set[int]] = {}
            for _ in range(200):
                masters_by_epoch(running, leading)
                await asyncio.sleep(0.1)
            assert set().union(*leading.values()) == {1}
            await running.kill(1)
            assert await running.settled(1) == 4
            running.check()

    scene()
    assert caplog.text.count("is alive at 10.0.1.1:10911, and 10.0.1.4:10911 has a copy") == 1


def test_a_master_that_was_replaced_by_its_copy_takes_no_messages_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @in_virtual_time
    async def scene() -> None:
        async with group(1, min_in_sync_replicas=1) as running:
            assert await running.settled(1) == 1
            running.part(1, CONTROLLER, NAMESRV)
            running.files[4] = running.files[1].copy()
            await running.start_broker(4)
            leading: dict[int, set[int]] = {}
            for tenths in range(600):
                masters_by_epoch(running, leading)
                if tenths == 300:
                    running.network.heal()
                await asyncio.sleep(0.1)
            assert running.master() == 4
            assert all(len(one) == 1 for one in leading.values()), leading

    scene()
    assert "is alive at 10.0.1.4:10911, and 10.0.1.1:10911 has a copy" in caplog.text


@in_virtual_time
async def test_a_copy_of_a_replicas_directory_acknowledges_nothing_in_its_name() -> None:
    async with group() as running:
        assert await running.settled(3) == 1
        await running.send_on(["a"])
        running.files[4] = running.files[2].copy()
        await running.start_broker(4)
        await asyncio.sleep(5)
        assert running.members() == {1, 2, 3}
        await running.send_on(["b"])
        await asyncio.sleep(6)  # the next heartbeat says that it is confirmed
        assert running.stored(2) == running.stored(1) == running.stored(3) != running.stored(4)
        await running.kill(1)
        await running.kill(3)
        assert await running.settled(1) == 2
        running.check()


@in_virtual_time
async def test_a_broker_that_is_started_again_elsewhere_is_the_same_broker() -> None:
    async with group() as running:
        assert await running.settled(3) == 1
        await running.send_on(["a"])
        for number in (1, 2):
            await running.kill(number)
            running.files[number + 3] = running.files[number].copy()
            await running.start_broker(number + 3)
            await running.settled(3)
            assert running.members() == {1, 2, 3}
            await running.send_on([f"b{number}"])
            running.check()


@in_virtual_time
async def test_a_broker_that_the_controller_knows_at_an_old_address_registers_again() -> None:
    async with group() as running:
        assert await running.settled(3) == 1
        old = deepcopy(running.state)
        await running.kill(2)
        running.files[5] = running.files[2].copy()
        await running.start_broker(5)
        await running.until(lambda: running.members() == {1, 2, 3})
        await running.kill_controller()
        running.state = old
        await running.start_controller()
        await asyncio.sleep(20)
        assert running.members() == {1, 2, 3}
        await running.send_on(["a"])
        await running.kill(1)
        await running.kill(3)
        assert await running.settled(1) == 5
        running.check()
