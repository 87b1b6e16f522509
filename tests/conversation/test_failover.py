"""Three brokers and a controller: masters die, fall silent and come back; nothing is lost."""

import asyncio

from tests.conversation.failover_group import CLIENT, CONTROLLER, Group, group

from roquet.model.route import TopicRoute
from roquet.net.channel import Channel
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.route import GetRoute
from roquet.wire.fastjson import codec


def log_of(running: Group, number: int) -> bytes:
    raw = running.brokers[number].broker.log.store.raw
    return bytes(raw.read(raw.begin, 1 << 20))


@in_virtual_time
async def test_a_group_begins_with_a_master_and_all_brokers_come_into_sync() -> None:
    async with group() as running:
        assert await running.settled(3) == 1
        await running.send_on(["one", "two"])
        running.check()
        await asyncio.sleep(1)
        assert log_of(running, 1) == log_of(running, 2) == log_of(running, 3) != b""


@in_virtual_time
async def test_a_master_alone_takes_no_message_that_nobody_else_would_have() -> None:
    async with group(1) as running:
        await running.until(lambda: running.master())
        reply = await running.send("one")
        assert (reply.code, reply.remark) == (1, "code 1: in-sync replicas not enough")
        assert running.stored(1) == []
        await running.start_broker(2)
        await running.settled(2)
        await running.send_on(["one"])


@in_virtual_time
async def test_a_killed_master_is_replaced_and_everything_acknowledged_is_there() -> None:
    async with group() as running:
        await running.settled(3)
        await running.send_on(f"a{n}" for n in range(20))
        await running.kill(1)
        began = running.loop.time()
        await running.send_on(f"b{n}" for n in range(20))
        assert running.loop.time() - began < 10
        running.check()
        await running.start_broker(1)
        assert await running.settled(3) in (2, 3)
        running.check()
        await asyncio.sleep(1)
        assert log_of(running, 1) == log_of(running, 2) == log_of(running, 3)


@in_virtual_time
async def test_a_silent_master_refuses_by_itself_and_is_truncated_when_it_is_back() -> None:
    async with group() as running:
        await running.settled(3)
        await running.send_on(f"a{n}" for n in range(5))
        running.part(1)
        # What it is sent in its last moments, it cannot confirm.
        running.brokers[1].broker.log.store.raw
        await asyncio.sleep(3)
        assert running.brokers[1].broker.replication.role.current.is_fenced
        await running.until(lambda: running.master() in (2, 3), 30)
        await running.send_on(f"b{n}" for n in range(5))
        running.check()
        running.network.heal()
        await running.settled(3)
        running.check()
        await asyncio.sleep(1)
        assert log_of(running, 1) == log_of(running, 2) == log_of(running, 3)


@in_virtual_time
async def test_a_message_without_confirmation_is_cut_when_its_master_comes_back() -> None:
    async with group() as running:
        await running.settled(3)
        await running.send_on(["a"])
        running.part(1, running.host(2), running.host(3), CONTROLLER)
        reply = await running.send("lost", 1)
        assert reply.code in (1, 12)
        assert "lost.0" not in running.stored(1)
        await running.until(lambda: running.master() in (2, 3), 30)
        await running.send_on(["b"])
        running.network.heal()
        await running.settled(3)
        running.check()
        assert "lost" not in running.stored(running.master() or 0)
        await asyncio.sleep(1)
        assert log_of(running, 1) == log_of(running, 2) == log_of(running, 3)


@in_virtual_time
async def test_a_master_parted_from_the_controller_alone_is_replaced() -> None:
    async with group() as running:
        await running.settled(3)
        await running.send_on(["a"])
        running.part(1, CONTROLLER)
        await running.until(lambda: running.master() in (2, 3), 30)
        await running.send_on(["b"])
        running.network.heal()
        await running.settled(3)
        running.check()


@in_virtual_time
async def test_a_group_that_is_started_again_as_a_whole_has_everything() -> None:
    async with group() as running:
        await running.settled(3)
        await running.send_on(f"a{n}" for n in range(10))
        for number in (1, 2, 3):
            await running.kill(number)
        for number in (3, 2, 1):
            await running.start_broker(number)
        await running.settled(3)
        running.check()
        await running.send_on(["b"])
        running.check()


@in_virtual_time
async def test_a_group_goes_on_once_its_controller_is_back() -> None:
    async with group() as running:
        await running.settled(3)
        await running.send_on(["a"])
        await running.kill_controller()
        await asyncio.sleep(60)
        assert running.master() is None
        await running.start_controller()
        await running.until(lambda: running.master() is not None)
        await running.send_on(["b"])
        running.check()


@in_virtual_time
async def test_brokers_wait_for_a_controller_that_is_started_after_them() -> None:
    running = Group()
    await running.start_namesrv()
    for number in (1, 2):
        await running.start_broker(number)
    await asyncio.sleep(60)
    assert running.master() is None
    await running.start_controller()
    await running.settled(2)
    await running.send_on(["a"])
    running.check()


@in_virtual_time
async def test_a_restarted_master_leads_in_a_new_epoch_or_not_at_all() -> None:
    async with group() as running:
        await running.settled(3)
        await running.send_on(["a"])
        epoch = running.brokers[1].broker.replication.role.current.epoch
        await running.kill(1)
        await running.start_broker(1)
        number = await running.settled(3)
        assert running.brokers[number].broker.replication.role.current.epoch > epoch
        await running.send_on(["b"])
        running.check()


@in_virtual_time
async def test_a_slow_replica_leaves_the_set_and_comes_back() -> None:
    async with group() as running:
        await running.settled(3)
        running.part(3)
        await running.until(lambda: running.members() == {1, 2}, 40)
        await running.send_on(["a"])
        running.network.heal()
        await running.settled(3)
        running.check()


@in_virtual_time
async def test_clients_see_the_new_master_at_the_name_server() -> None:
    async with group() as running:
        await running.settled(3)
        await running.send_on(["a"])

        async def addresses() -> dict[int, str]:
            channel = await Channel.connect("10.0.0.1", 9876, clock=running.loop.clock)
            async with channel:
                reply = await channel.call(GetRoute(topic="orders"))
            return dict(codec.loads(reply.body, TopicRoute).broker_datas[0].broker_addrs)

        await asyncio.sleep(1)
        known = await running.hosts.run(CLIENT, addresses())
        assert known[0] == "10.0.1.1:10911"
        await running.kill(1)
        await running.settled(2)
        await running.send_on(["b"])
        await asyncio.sleep(1)
        number = running.master()
        known = await running.hosts.run(CLIENT, addresses())
        assert known[0] == f"10.0.1.{number}:10911"
