"""Delayed and timed messages across a switch of the master: all come, and none of them early."""

from collections import Counter

import pytest
from tests.broker.replication.role_switches import SWITCHES, Switch, asked, bodies, records
from tests.conversation.failover_group import TOPIC, Group, group

from roquet.model import properties as props
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.timer import Recall

SECONDS = range(1, 31)
"""Delivery times after the first message, in s: a switch takes some of them."""

LEVELS = {1: 1, 2: 5, 3: 10, 4: 30}
"""Seconds of the first delay levels."""


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
@in_virtual_time
async def test_messages_of_delay_levels_come_at_least_once_and_never_early(switch: Switch) -> None:
    async with group() as running:
        await running.settled(3)
        await running.send_on(["first"])
        due: dict[str, int] = {}
        for round_number in range(8):
            for level, seconds in LEVELS.items():
                due_ms = running.loop.clock.now_ms() + seconds * 1_000
                body = f"{round_number} at level {level}"
                await send_for(running, body, due_ms, f"{props.DELAY}\x01{level}\x02", due)
            await running.loop.clock.sleep(400)
        await check_all_come(running, due, switch)


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
@in_virtual_time
async def test_timed_messages_come_at_least_once_and_never_early(switch: Switch) -> None:
    async with group() as running:
        await running.settled(3)
        await running.send_on(["first"])
        due: dict[str, int] = {}
        began_ms = running.loop.clock.now_ms()
        for seconds in SECONDS:
            for part_ms in (0, 370):
                due_ms = began_ms + seconds * 1_000 + part_ms
                text = f"{props.TIMER_DELIVER_MS}\x01{due_ms}\x02"
                await send_for(running, f"{seconds} s and {part_ms} ms", due_ms, text, due)
        await check_all_come(running, due, switch)


@in_virtual_time
async def test_a_timed_message_that_was_taken_back_before_the_switch_stays_away() -> None:
    async with group(recall_message=True) as running:
        await running.settled(3)
        await running.send_on(["first"])
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
