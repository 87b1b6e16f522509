"""Delayed and timed messages across a switch of the master: all come, and none of them early."""

import asyncio
from collections import Counter

import pytest
from tests.broker.replication.role_switches import (
    ASIDE_MS,
    SWITCHES,
    Switch,
    asked,
    bodies,
    designate,
    records,
)
from tests.conversation.failover_group import CONTROLLER, TOPIC, Group, settled

from roquet.model import properties as props
from roquet.wire.calls.timer import Recall

pytestmark = pytest.mark.virtual_time

SECONDS = range(1, 31)
"""Delivery times after the first message, in s: a switch takes some of them."""

LEVELS = {1: 1, 2: 5, 3: 10, 4: 30}
"""Seconds of the first delay levels."""

COPY_MS = 2_500
"""Longest time that a replica's progress is behind its master's: it is copied each second, once the
own log holds all that the master's held, and the timer delivers a whole second again."""


async def send_for(
    running: Group, body: str, due_ms: int, properties: str, due: dict[str, int]
) -> None:
    """Send a message that waits, and note when it is due."""
    reply = await running.send(body, properties=properties)
    assert reply.code == 0
    del running.acknowledged[body]  # its offset is that of the queue where it waits
    due[body] = due_ms


async def check_all_come(running: Group, due: dict[str, int], switch: Switch) -> None:
    """Switch the master, and wait for all messages at the new one: none of them is early."""
    await running.loop.clock.sleep(3_000)
    number = await switch(running)
    over_ms = running.loop.clock.now_ms()
    await running.until(lambda: due.keys() <= set(bodies(running, number)), 90)
    await running.loop.clock.sleep(5_000)
    found = [record for record in records(running, number) if record.body.decode() in due]
    assert [r.body for r in found if r.stored_ms < due[r.body.decode()]] == [], "nothing is early"
    times = Counter(record.body.decode() for record in found)
    assert {times[body] for body, due_ms in due.items() if due_ms > over_ms} <= {1}
    late = [r.stored_ms for r in found if due[r.body.decode()] <= over_ms]
    assert max(late, default=0) <= over_ms + 2_000, (
        "what was due during the switch comes once it is over"
    )
    running.check()


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
async def test_messages_of_delay_levels_come_at_least_once_and_never_early(switch: Switch) -> None:
    async with settled(["first"]) as running:
        due: dict[str, int] = {}
        for round_number in range(8):
            for level, seconds in LEVELS.items():
                due_ms = running.loop.clock.now_ms() + seconds * 1_000
                body = f"{round_number} at level {level}"
                await send_for(running, body, due_ms, f"{props.DELAY}\x01{level}\x02", due)
            await running.loop.clock.sleep(400)
        await check_all_come(running, due, switch)


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
async def test_timed_messages_come_at_least_once_and_never_early(switch: Switch) -> None:
    async with settled(["first"]) as running:
        due: dict[str, int] = {}
        began_ms = running.loop.clock.now_ms()
        for seconds in SECONDS:
            for part_ms in (0, 370):
                due_ms = began_ms + seconds * 1_000 + part_ms
                text = f"{props.TIMER_DELIVER_MS}\x01{due_ms}\x02"
                await send_for(running, f"{seconds} s and {part_ms} ms", due_ms, text, due)
        await check_all_come(running, due, switch)


async def test_a_timed_message_that_was_taken_back_before_the_switch_stays_away() -> None:
    async with settled(["first"], recall_message=True) as running:
        due: dict[str, int] = {}
        due_ms = running.loop.clock.now_ms() + 10_000
        text = f"{props.TIMER_DELIVER_MS}\x01{due_ms}\x02"
        recalled = await running.send("taken back", properties=text)
        del running.acknowledged["taken back"]
        await send_for(running, "kept", due_ms, text, due)
        assert recalled.recall_handle
        call = Recall(producer_group="p", topic=TOPIC, recall_handle=recalled.recall_handle)
        await asked(running, 1, call)
        await check_all_come(running, due, SWITCHES["killed"])
        assert "taken back" not in bodies(running, running.master() or 0)


async def demote(running: Group) -> int:
    """Let another broker lead for a while; the former master follows it."""
    return await designate(running, 2)


async def kill_and_return(running: Group) -> int:
    """Kill the master, and start it again as a replica of the next one."""
    await running.loop.clock.sleep(ASIDE_MS)
    await running.kill(1)
    number = await running.settled(2)
    await running.start_broker(1)
    assert await running.settled(3) == number
    return number


async def send_some(running: Group, name: str, due: dict[str, int]) -> None:
    """Send messages that are due in the next 30 s, by delay levels and at times."""
    for level, seconds in LEVELS.items():
        due_ms = running.loop.clock.now_ms() + seconds * 1_000
        text = f"{props.DELAY}\x01{level}\x02"
        await send_for(running, f"{name} at level {level}", due_ms, text, due)
    for seconds in range(1, 31):
        due_ms = running.loop.clock.now_ms() + seconds * 1_000 + 370
        text = f"{props.TIMER_DELIVER_MS}\x01{due_ms}\x02"
        await send_for(running, f"{name} in {seconds} s", due_ms, text, due)


@pytest.mark.parametrize("switch", [demote, kill_and_return])
async def test_all_come_once_but_for_those_of_the_last_seconds_before_a_switch(
    switch: Switch,
) -> None:
    async with settled(["first"]) as running:
        clock, due, switched_ms = running.loop.clock, dict[str, int](), list[int]()
        await send_some(running, "of the past", due)
        await clock.sleep(45_000)
        await send_some(running, "of the first term", due)
        await clock.sleep(8_000)
        switched_ms.append(clock.now_ms())
        await switch(running)
        await send_some(running, "of the other term", due)
        await clock.sleep(8_000)
        switched_ms.append(clock.now_ms())
        assert await designate(running, 1) == 1
        await clock.sleep(45_000)
        found = [record for record in records(running, 1) if record.body.decode() in due]
        assert [r.body for r in found if r.stored_ms < due[r.body.decode()]] == [], "none is early"
        times = Counter(record.body.decode() for record in found)
        assert times.keys() == due.keys(), "none is lost"
        again = {body for body, count in times.items() if count > 1}
        late = {b for b in again if not any(0 <= at - due[b] < COPY_MS for at in switched_ms)}
        assert late == set(), "only what was delivered last comes again"
        running.check()


async def test_what_only_a_parted_master_delivered_comes_again_if_its_successor_dies_at_once() -> (
    None
):
    async with settled(["first"]) as running:
        clock, due = running.loop.clock, dict[str, int]()
        for number in range(3):
            due_ms = clock.now_ms() + 10_000
            await send_for(running, f"level {number}", due_ms, f"{props.DELAY}\x013\x02", due)
            text = f"{props.TIMER_DELIVER_MS}\x01{due_ms}\x02"
            await send_for(running, f"time {number}", due_ms, text, due)
        await clock.sleep(9_000)
        running.part(1, running.host(2), running.host(3), CONTROLLER)
        for number in (2, 3):  # no room to deliver anything
            running.files[number].capacity = 0
        offsets = running.brokers[1].broker.tables.delay_offsets
        await running.until(lambda: offsets.get(3) == 3, 5)
        await running.until(lambda: running.master() not in (None, 1), 30)
        running.network.heal()
        async with asyncio.timeout(10):
            while 1 not in running.members():
                await clock.sleep(5)
        assert bodies(running, 1) == ["first.0"], "what it delivered was cut"
        await running.kill(running.master() or 0)
        await running.until(lambda: running.master() == 1, 30)
        running.files[3].capacity = 1 << 40
        await running.until(lambda: due.keys() <= set(bodies(running, 1)), 30)
        running.check()
