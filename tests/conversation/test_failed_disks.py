"""A group of brokers with a controller in which the disk of one fails, or is full."""

import asyncio
import errno
from pathlib import Path

from msgspec.structs import replace
from tests.conversation.failover_group import Group, group


def break_disk(running: Group, number: int) -> None:
    """Let each flush of a broker fail from now on."""

    def fail(_path: Path, _view: memoryview | None = None) -> None:
        raise OSError(errno.EIO, "Input/output error")

    running.files[number].sync = fail  # type: ignore[assignment, method-assign]


def is_flushed(running: Group, number: int) -> bool:
    store = running.brokers[number].broker.log.store
    return store.flushed_position == store.raw.end


async def test_a_master_whose_disk_fails_is_replaced_and_nothing_is_lost() -> None:
    async with group() as running:
        assert await running.settled(3) == 1
        await running.send_on(["a"])
        break_disk(running, 1)
        await running.send("b", 1)
        await running.until(lambda: running.master() in (2, 3), 5)
        await running.send_on(["c"])
        running.check()
        await asyncio.sleep(60)
        assert running.master() in (2, 3)
        assert 1 not in running.members()


async def test_a_master_whose_disk_fails_while_it_is_alone_waits_for_a_member() -> None:
    async with group(2, min_in_sync_replicas=1) as running:
        assert await running.settled(2) == 1
        await running.kill(2)
        await running.until(lambda: running.members() == {1})
        await running.send_on(["a"])
        break_disk(running, 1)
        await running.send("b", 1)
        await asyncio.sleep(20)
        assert running.brokers[1].broker.replication.role.current.is_active
        assert running.brokers[1].broker.log.store.failure is not None
        assert running.stored(1)[0] == "a.0", "consumers read there"
        await running.start_broker(2)
        await running.until(lambda: running.master() == 2)
        running.check()


async def test_a_member_whose_disk_fails_is_no_candidate_even_after_a_restart() -> None:
    async with group(2) as running:
        assert await running.settled(2) == 1
        await running.send_on(["a"])
        await running.until(lambda: is_flushed(running, 2))
        break_disk(running, 2)
        assert (await running.send("b", 1)).code == 0
        await asyncio.sleep(2)
        assert running.brokers[2].broker.log.store.failure is not None
        assert running.members() == {1, 2}
        await running.kill(1)
        await asyncio.sleep(30)
        assert running.master() is None
        await running.kill(2)
        await running.start_broker(2)
        await asyncio.sleep(30)
        assert running.master() is None
        await running.start_broker(1)
        await running.settled(2)
        running.check()


async def test_a_master_whose_disk_is_full_leads_on_and_takes_messages_once_there_is_room() -> None:
    async with group(free_min=1_000) as running:
        assert await running.settled(3) == 1
        await running.send_on(["a"])
        files = running.files[1]
        usage = files.usage(Path("/data"))
        files.usage = lambda _directory: replace(usage, free=0)  # type: ignore[method-assign]
        await asyncio.sleep(60)
        assert (await running.send("b", 1)).code != 0
        assert running.master() == 1
        files.usage = lambda _directory: usage  # type: ignore[method-assign]
        await asyncio.sleep(60)
        await running.send_on(["c"])
        running.check()
