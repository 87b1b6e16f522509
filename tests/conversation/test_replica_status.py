"""Operators see from outside that messages are not taken, or that their senders wait in vain."""

from typing import Any

import pytest
from tests.admin.elected_group import address, operate
from tests.conversation.failover_group import CONTROLLER, Group, group
from tests.conversation.test_replication import group_of_brokers

from roquet.admin.client import AdminClient
from roquet.admin.replicas import problems, statuses
from roquet.client.config import ClientConfig
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.testing.clock import this_loop


async def seen(running: Group) -> list[str]:
    return problems(await operate(running, statuses))


async def test_a_replica_that_a_master_with_a_fixed_role_needs_and_that_is_gone_is_amiss() -> None:
    settings: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 2}
    clock = this_loop().clock
    async with (
        group_of_brokers(**settings) as running,
        AdminClient(running.namesrv_addr, ClientConfig(clock=clock)) as admin,
    ):
        await running.add_replica()
        await clock.sleep(5_000)
        assert problems(await statuses(admin)) == []
        await running.stop_broker(1)
        await clock.sleep(5_000)
        (line,) = problems(await statuses(admin))
        assert line.startswith("broker-a: 1 log is in sync, and messages need 2 (inSyncReplicas")


async def test_a_member_that_its_controller_misses_is_amiss_though_name_servers_forgot_it() -> None:
    async with group(3) as running:
        await running.settled(3)
        await running.loop.clock.sleep(5_000)
        assert await seen(running) == []
        await running.kill(3)
        await running.settled(2)
        await running.loop.clock.sleep(5_000)
        away = f"g 3 at {address(3)} is away: its controller does not hear of it"
        assert await seen(running) == [away]
        gone = (await operate(running, statuses))[-1]
        assert (gone.broker_id, gone.is_in_sync, gone.is_alive) == (3, False, False)


async def test_a_controller_that_is_away_is_amiss() -> None:
    async with group(2) as running:
        await running.settled(2)
        await running.kill_controller()
        await running.loop.clock.sleep(10_000)
        (line,) = await seen(running)
        assert line.startswith(f"g: no controller leads: {CONTROLLER}:9878: ")
        assert line.endswith("; its master takes no message once its lease is over")


@pytest.mark.parametrize("seconds", [10, 12])
async def test_a_replica_that_is_stopped_does_not_complain_of_copies_that_it_gives_up(
    seconds: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with group_of_brokers() as running:
        await running.add_replica()
        this_loop().network.delay(300, 500)
        await this_loop().clock.sleep(seconds * 1_000)
        await running.stop_broker(1)
    assert "no copy of" not in caplog.text
