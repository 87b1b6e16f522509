"""Senders answered after two logs of three: what that survives, and what it does not.

With `allAckInSyncStateSet=false` a message is acknowledged that a member of the set may lack.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.admin.elected_group import operate
from tests.conversation.failover_group import CONTROLLER, Group, group

from roquet.admin import retire
from roquet.model.errors import CallRefused, RoquetError
from roquet.net.channel import Channel
from roquet.rules.replication.acknowledgement import ReplicaAck
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.wire.calls.admin.settings import UpdateSettings
from roquet.wire.calls.controller import CleanBrokerData
from roquet.wire.codes import ResponseCode

pytestmark = pytest.mark.virtual_time

WAIT_MS = 15_000
"""Longer than any election takes."""


@asynccontextmanager
async def two_of_three() -> AsyncIterator[Group]:
    """Three brokers, of which two have to hold a message; the first one leads."""
    async with group(all_ack_in_sync_set=False, in_sync_replicas=2) as running:
        assert await running.settled(3) == 1
        await running.send_on(["everywhere"])
        await running.loop.clock.sleep(2_000)
        yield running


async def send_without(running: Group, *numbers: int) -> int:
    """Send a message that some members of the set do not get; the code of the answer."""
    for number in numbers:
        running.network.partition(running.host(1), running.host(number))
    return (await running.send("between", 1)).code


async def kill_holders(running: Group) -> None:
    """Kill the two that have the message; what is under way to the third never arrives."""
    running.network.drop(running.host(1), running.host(3))
    for number in (1, 2):
        await running.kill(number)
    running.network.heal()


def lose(running: Group, number: int) -> None:
    """Lose the directory of a broker that was killed, for good."""
    running.files[number] = MemoryFiles()


async def test_a_message_is_acknowledged_that_one_member_of_three_lacks() -> None:
    async with two_of_three() as running:
        assert await send_without(running, 3) == ResponseCode.SUCCESS
        assert running.members() == {1, 2, 3}
        ends = {n: server.broker.log.store.raw.end for n, server in running.brokers.items()}
        assert ends[1] == ends[2] > ends[3]


async def test_a_message_that_one_log_alone_holds_is_not_acknowledged() -> None:
    async with two_of_three() as running:
        assert await send_without(running, 2, 3) == ResponseCode.FLUSH_SLAVE_TIMEOUT


async def test_while_the_whole_set_has_to_hold_it_that_message_is_not_acknowledged() -> None:
    async with group(all_ack_in_sync_set=True, in_sync_replicas=2) as running:
        assert await running.settled(3) == 1
        await running.send_on(["everywhere"])
        assert await send_without(running, 3) == ResponseCode.FLUSH_SLAVE_TIMEOUT


async def test_consumers_do_not_see_it_before_the_whole_set_has_it() -> None:
    async with two_of_three() as running:
        assert await send_without(running, 3) == ResponseCode.SUCCESS
        assert "between" not in running.stored(1)
        running.network.heal()
        await running.until(lambda: "between" in running.stored(1), 30)


async def test_with_synchronous_flush_they_do_not_see_it_before_the_masters_disk_has_it() -> None:
    flushed = ReplicaAck.FLUSHED
    async with group(all_ack_in_sync_set=True, sync_flush=True, replica_ack=flushed) as running:
        assert await running.settled(3) == 1
        await running.send_on(["everywhere"])
        master, slow = running.brokers[1].broker.log.store, running.loop.executor_ms
        slow[running.host(1)] = 2_000
        sending = asyncio.create_task(running.send("between", 1))
        await running.loop.clock.sleep(1_000)
        mode = running.brokers[1].broker.replication.controller_mode
        assert mode is not None
        assert mode.sync_set.acknowledged == master.raw.end, "it is on the replicas' disks"
        assert mode.sync_set.confirmed == master.flushed_position < master.raw.end
        assert "between" not in running.stored(1)
        slow.clear()
        assert (await sending).code == ResponseCode.SUCCESS
        assert "between" in running.stored(1)


async def test_with_synchronous_flush_they_see_soon_what_nobody_waits_for() -> None:
    async with group(all_ack_in_sync_set=True, sync_flush=True, flush_interval=60_000) as running:
        assert await running.settled(3) == 1
        await running.send_on(["everywhere"])
        assert (await running.send("quick", 1, "WAIT\x01false\x02")).code == ResponseCode.SUCCESS
        await running.until(lambda: "quick" in running.stored(1), 1)


async def test_a_master_that_is_killed_is_replaced_by_the_member_that_has_it() -> None:
    async with two_of_three() as running:
        assert await send_without(running, 3) == ResponseCode.SUCCESS
        await running.kill(1)
        running.network.heal()
        assert await running.settled(2) == 2
        running.check()


async def test_a_master_that_falls_silent_is_replaced_by_the_member_that_has_it() -> None:
    async with two_of_three() as running:
        assert await send_without(running, 3) == ResponseCode.SUCCESS
        running.part(1)
        await running.until(lambda: running.master() in (2, 3), 30)
        assert running.master() == 2
        running.network.heal()
        await running.settled(3)
        running.check()


async def test_an_operator_elects_where_one_of_three_is_left() -> None:
    async with two_of_three() as running:
        assert await send_without(running, 3) == ResponseCode.SUCCESS
        for number in (1, 3):
            await running.kill(number)
            lose(running, number)
        await running.loop.clock.sleep(WAIT_MS)
        assert running.master() is None, "2 cannot know that it has everything"
        with pytest.raises(CallRefused, match="as unclean"):
            await running.elect(2)
        await running.elect(2, unclean=True)
        await running.until(lambda: running.master() == 2)
        running.check()


async def test_it_is_lost_when_exactly_the_two_that_hold_it_are_gone_and_an_operator_goes_on() -> (
    None
):
    async with two_of_three() as running:
        assert await send_without(running, 3) == ResponseCode.SUCCESS
        await kill_holders(running)
        for number in (1, 2):
            lose(running, number)
        await running.elect(3, unclean=True)
        await running.until(lambda: running.master() == 3)
        assert running.stored(3) == ["everywhere.0"], "what the third had never seen is gone"
        with pytest.raises((AssertionError, IndexError)):
            running.check()


async def test_it_is_kept_when_the_two_that_hold_it_are_only_away() -> None:
    async with two_of_three() as running:
        assert await send_without(running, 3) == ResponseCode.SUCCESS
        await kill_holders(running)
        await running.loop.clock.sleep(WAIT_MS)
        assert running.master() is None, "3 alone is not elected, although it is in the set"
        await running.start_broker(2)
        await running.until(lambda: running.master() == 2)
        await running.start_broker(1)
        await running.settled(3)
        assert "between" in running.stored(2)
        running.check()


async def test_it_is_kept_when_the_controller_has_forgotten_who_is_alive() -> None:
    async with two_of_three() as running:
        assert await send_without(running, 3) == ResponseCode.SUCCESS
        await running.kill(3)
        await running.kill_controller()
        for number in (1, 2):
            running.part(number, CONTROLLER)
        await running.start_controller()
        await running.start_broker(3)
        await running.loop.clock.sleep(WAIT_MS)
        assert running.master() is None, "only 3 has told the new controller that it is alive"
        running.network.heal()
        await running.settled(3)
        assert running.master() in (1, 2)
        running.check()


async def test_it_is_kept_when_its_two_holders_are_killed_one_after_the_other() -> None:
    async with two_of_three() as running:
        assert await send_without(running, 3) == ResponseCode.SUCCESS
        await running.kill(2)
        await running.loop.clock.sleep(4_000)
        assert running.members() == {1, 2, 3}, "without 2 the third one might be elected alone"
        running.network.drop(running.host(1), running.host(3))
        await running.kill(1)
        running.network.heal()
        await running.loop.clock.sleep(WAIT_MS)
        assert running.master() is None
        await running.start_broker(2)
        assert await running.settled(2) == 2
        running.check()


async def test_a_master_that_is_retired_leaves_its_place_to_one_that_has_all_it_took() -> None:
    async with two_of_three() as running:
        retiring = asyncio.create_task(
            operate(running, lambda admin: retire.retire(admin, "g", wait_ms=30_000))
        )
        await running.loop.clock.sleep(300)
        running.network.partition(running.host(1), running.host(2))
        for n in range(3):  # the lease runs
            assert (await running.send(f"late {n}", 1)).code == ResponseCode.SUCCESS
        with pytest.raises(RoquetError, match="broker 2 lacks messages that broker 1 has"):
            await retiring
        running.network.heal()
        assert await running.settled(3) == 1, "it goes on"
        running.check()
        await operate(running, lambda admin: retire.retire(admin, "g", wait_ms=30_000))
        assert running.master() in (2, 3)
        running.check()


async def clean(running: Group, number: int) -> None:
    """Remove a broker's id from the controller."""
    call = CleanBrokerData(
        broker_name="g", broker_controller_ids_to_clean=str(number), invoke_time=0
    )
    async with await Channel.connect(CONTROLLER, 9878, clock=running.loop.clock) as channel:
        await channel.call(call)


async def test_a_dead_member_that_may_have_acknowledged_messages_keeps_its_id() -> None:
    async with two_of_three() as running:
        assert await send_without(running, 3) == ResponseCode.SUCCESS
        await kill_holders(running)
        await running.loop.clock.sleep(WAIT_MS)
        with pytest.raises(CallRefused, match=r"brokers \[1\] are in the sync-state set"):
            await clean(running, 1)
        await running.start_broker(2)
        assert await running.settled(2) == 2
        running.check()


async def test_a_replica_loses_its_id_for_good_once_the_others_have_what_it_has() -> None:
    async with two_of_three() as running:
        assert await send_without(running, 3) == ResponseCode.SUCCESS
        gone = await operate(running, lambda admin: retire.retire(admin, "g#2", wait_ms=0))
        await running.kill(2)
        with pytest.raises(RoquetError, match=r"2 at .* keeps its id: .*wait until the master"):
            await operate(running, lambda admin: retire.remove(admin, gone, wait_ms=1_000))
        running.network.heal()
        await operate(running, lambda admin: retire.remove(admin, gone, wait_ms=60_000))
        assert running.members() == {1, 3}
        await running.kill(1)
        await running.until(lambda: running.master() == 3)
        running.check()


async def test_settings_that_become_stricter_leave_earlier_messages_their_protection() -> None:
    async with two_of_three() as running:
        assert await send_without(running, 3) == ResponseCode.SUCCESS
        for number in (1, 2, 3):
            await running.ask(number, UpdateSettings(body=b"inSyncReplicas=3\n"))
        await running.loop.clock.sleep(3_000)
        await kill_holders(running)
        await running.loop.clock.sleep(WAIT_MS)
        assert running.master() is None


async def test_laxer_settings_count_once_the_controller_knows_them() -> None:
    async with group(all_ack_in_sync_set=False, in_sync_replicas=3, slave_timeout=500) as running:
        assert await running.settled(3) == 1
        await running.send_on(["everywhere"])
        running.part(1, CONTROLLER)
        await running.ask(1, UpdateSettings(body=b"inSyncReplicas=2\n"))
        assert await send_without(running, 3) == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert running.master() == 1, "its lease is not over"
        running.network.heal()
        await running.loop.clock.sleep(1_000)
        assert await send_without(running, 3) == ResponseCode.SUCCESS


async def test_another_setting_of_a_replica_leaves_the_masters_messages_their_protection() -> None:
    async with two_of_three() as running:
        await running.kill(3)
        await running.start_broker(3, all_ack_in_sync_set=True)
        await running.settled(3)
        await running.loop.clock.sleep(3_000)
        assert await send_without(running, 3) == ResponseCode.SUCCESS
        await kill_holders(running)
        await running.loop.clock.sleep(WAIT_MS)
        assert running.master() is None


async def test_stricter_settings_count_once_every_member_has_the_earlier_messages() -> None:
    async with two_of_three() as running:
        for number in (1, 2, 3):
            await running.ask(number, UpdateSettings(body=b"inSyncReplicas=3\n"))
        await running.loop.clock.sleep(3_000)
        for number in (1, 2):
            await running.kill(number)
        await running.until(lambda: running.master() == 3)
        running.check()
