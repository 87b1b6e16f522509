"""A lease that lapses for a moment: answers of the controller are late, and nobody is elected."""

import pytest
from tests.broker.replication.role_switches import bodies, records
from tests.broker.replication.test_pop_switch import RETRY, acknowledge, pop
from tests.broker.replication.test_timed_services_switch import send_for
from tests.broker.replication.test_transactions_switch import COMMIT, end, half
from tests.conversation.failover_group import CONTROLLER, Group, group

from roquet.model import properties as props
from roquet.testing.clock import in_virtual_time

RESUMED_MS = 1_000
"""Ms after which deliveries have to go on once the controller answers again."""

SLACK_MS = 100
"""Ms that a delivery takes when nothing is wrong."""

INVISIBLE_MS = 11_000


async def send_some(running: Group, due: dict[str, int]) -> None:
    """Send messages that fall due before, during and after the lapse."""
    clock = running.loop.clock
    for level, seconds in {2: 5, 3: 10}.items():
        due_ms = clock.now_ms() + seconds * 1_000
        text = f"{props.DELAY}\x01{level}\x02"
        await send_for(running, f"level {level} at {due_ms}", due_ms, text, due)
    for ms in range(7_000, 15_000, 200):
        due_ms = clock.now_ms() + ms
        text = f"{props.TIMER_DELIVER_MS}\x01{due_ms}\x02"
        await send_for(running, f"time {due_ms}", due_ms, text, due)


async def lapse(running: Group, hosts: tuple[str, ...]) -> tuple[int, int]:
    """Part the master from these hosts until its lease is over; gives when it was, and until when.

    It is the master of the same epoch afterwards.
    """
    role, clock = running.brokers[1].broker.replication.role, running.loop.clock
    before = role.current
    running.part(1, *hosts)
    await running.until(lambda: role.current.is_fenced, 3)
    began_ms = clock.now_ms()
    await clock.sleep(300)
    running.network.heal()
    healed_ms = clock.now_ms()
    await running.until(lambda: role.current.is_active, RESUMED_MS / 1_000)
    assert role.current == before, "it leads in the same epoch"
    return began_ms, healed_ms


@pytest.mark.parametrize(
    "hosts",
    [(CONTROLLER,), (CONTROLLER, Group.host(2)), (CONTROLLER, Group.host(2), Group.host(3))],
    ids=["controller", "controller and a replica", "controller and replicas"],
)
@pytest.mark.parametrize("phase_ms", [0, 410])
@in_virtual_time
async def test_nothing_is_lost_or_early_and_deliveries_go_on_at_once(
    hosts: tuple[str, ...], phase_ms: int
) -> None:
    async with group() as running:
        await running.settled(3)
        await running.send_on(["first", *(f"m{n}" for n in range(4))])
        clock, due = running.loop.clock, dict[str, int]()
        await clock.sleep(1_000 + phase_ms)
        handles = await pop(running, 1, INVISIBLE_MS)
        popped_ms = clock.now_ms()
        for _ in range(4):
            await send_some(running, due)
            await clock.sleep(500)
        prepared = await half(running, "paid")
        await clock.sleep(6_000)
        began_ms, healed_ms = await lapse(running, hosts)
        acked = sorted(handles)[:2]
        for body in acked:
            assert await acknowledge(running, 1, handles[body]) == 0
        await end(running, 1, prepared, COMMIT)
        await running.send_on(["last"])
        assert clock.now_ms() - healed_ms <= RESUMED_MS, "messages are taken again"
        left = handles.keys() - set(acked)
        await running.until(lambda: left <= set(bodies(running, 1, RETRY)), 15)
        await clock.sleep(10_000)
        found = {record.body.decode(): record.stored_ms for record in reversed(records(running, 1))}
        assert due.keys() <= found.keys(), "nothing is lost"
        assert "paid" in found
        for body, due_ms in due.items():
            is_held_up = began_ms <= due_ms <= healed_ms + RESUMED_MS
            latest_ms = healed_ms + RESUMED_MS if is_held_up else due_ms
            assert due_ms <= found[body] <= latest_ms + SLACK_MS, body
        assert any(began_ms < due_ms < healed_ms for due_ms in due.values())
        again = records(running, 1, RETRY)
        assert {record.body.decode() for record in again} == left
        assert min(record.stored_ms for record in again) >= popped_ms + INVISIBLE_MS
        running.check()
