"""Ends of queues across a switch of the master, as readers see them at the leader of the route."""

from typing import Final

import pytest
from tests.broker.replication.role_switches import ask
from tests.conversation.failover_group import CLIENT, NAMESRV, PORT, TOPIC, Group, group

from roquet.model.errors import CallError
from roquet.model.route import TopicRoute
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.offset import MaxOffset
from roquet.wire.calls.route import GetRoute
from roquet.wire.fastjson import codec

LOOKS: Final = 60
COUNT: Final = 40


async def end_at_leader(running: Group) -> int | None:
    """End of the queue at the leader that name servers show; None while nobody tells it."""
    asking = ask(running, NAMESRV, 9876, GetRoute(topic=TOPIC))
    route = codec.loads((await running.hosts.run(CLIENT, asking)).body, TopicRoute)
    leader = route.broker_datas[0].leader if route.broker_datas else None
    if leader is None:
        return None
    host, call = leader.split(":")[0], MaxOffset(topic=TOPIC, queue_id=0)
    try:
        return (await running.hosts.run(CLIENT, ask(running, host, PORT, call, 300))).offset
    except CallError:
        return None


@pytest.mark.parametrize("is_noticed", [True, False])
@in_virtual_time
async def test_the_end_of_a_queue_never_goes_back_while_its_master_is_restarted(
    is_noticed: bool,
) -> None:
    async with group() as running:
        number = await running.settled(3)
        for body in range(COUNT):
            await running.send(f"{body}")
        await running.loop.clock.sleep(1_000)
        if not is_noticed:  # name servers show it until it registers anew
            running.part(number)
        await running.kill(number)
        running.network.heal()
        await running.start_broker(number)
        seen = []
        for _ in range(LOOKS):
            seen.append(await end_at_leader(running))
            await running.loop.clock.sleep(50)
        assert set(seen) <= {COUNT, None}
        assert seen[-1] == COUNT
