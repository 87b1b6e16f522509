"""Brokers of a group whose logs may lack something after a start, by what their files say."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.conversation.failover_group import group

from roquet.rules.replication.acknowledgement import ReplicaAck
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.wire.calls.admin.settings import UpdateSettings

STRICT: dict[str, Any] = {"sync_flush": True, "replica_ack": ReplicaAck.FLUSHED}


@pytest.mark.parametrize("settings", [{}, STRICT], ids=["same settings", "stricter settings"])
async def test_a_loss_of_power_is_not_forgotten_by_new_settings(settings: dict[str, Any]) -> None:
    async with group(2) as running:
        await running.settled(2)
        await running.send_on(f"a{n}" for n in range(10))
        running.part(1, running.host(2))  # it cannot give back what 2 loses
        await running.kill(2)
        running.lose_tail(2, 3)
        await running.start_broker(2, **settings)
        await asyncio.sleep(1)
        await running.kill(1)
        await asyncio.sleep(60)
        assert running.master() is None
        await running.start_broker(1)
        running.network.heal()
        await running.settled(2)
        running.check()


async def test_settings_that_were_relaxed_at_run_time_count_after_a_loss_of_power() -> None:
    async with group(2, **STRICT) as running:
        await running.settled(2)
        body = b"flushDiskType=ASYNC_FLUSH\nreplica_ack=appended\n"
        for number in (1, 2):
            await running.ask(number, UpdateSettings(body=body))
        await running.send_on(f"a{n}" for n in range(10))
        running.part(1, running.host(2))
        await running.kill(2)
        running.lose_tail(2, 3)
        await running.start_broker(2)
        await asyncio.sleep(1)
        await running.kill(1)
        await asyncio.sleep(60)
        assert running.master() is None


async def test_where_all_is_flushed_a_loss_of_power_on_all_machines_needs_no_operator() -> None:
    async with group(2, **STRICT) as running:
        await running.settled(2)
        await running.send_on(["a"])
        for number in (1, 2):
            await running.kill(number)
            running.boot_ids[number] = "second"
        for number in (1, 2):
            await running.start_broker(number)
        await running.settled(2)
        running.check()


async def test_a_member_whose_directory_was_emptied_but_for_its_identity_is_not_elected() -> None:
    async with group(2) as running:
        assert await running.settled(2) == 1
        await running.send_on(["a", "b"])
        await running.kill_controller()
        for number in (1, 2):
            await running.kill(number)
        files = running.files[2] = MemoryFiles()
        files.replace(Path("/data/brokerIdentity"), b"c#g#2")
        await running.start_controller()
        await running.start_broker(2)
        await asyncio.sleep(20)
        assert running.master() is None
        await running.start_broker(1)
        assert await running.settled(2) == 1
        running.check()
