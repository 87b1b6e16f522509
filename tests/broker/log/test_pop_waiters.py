import asyncio

import pytest

from roquet.broker.log.pop_waiters import PopWaiters
from roquet.rules.consumption import pop
from roquet.testing.clock import in_virtual_time, this_loop

SOON = 10_000


def waiting(polls: PopWaiters, *queue_ids: int, group: str = "g") -> list[asyncio.Task[bool]]:
    return [asyncio.create_task(polls.wait(group, "t", queue_id, SOON)) for queue_id in queue_ids]


def woken(tasks: list[asyncio.Task[bool]]) -> list[bool]:
    return [task.done() and task.result() for task in tasks]


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@in_virtual_time
async def test_a_message_wakes_one_pop_of_each_group_the_first_come_first() -> None:
    polls = PopWaiters(this_loop().clock)
    ours, theirs = waiting(polls, -1, -1), waiting(polls, -1, group="h")
    await settle()
    polls.arrived("t", 3, 1)
    await settle()
    assert woken(ours) == [True, False]
    assert woken(theirs) == [True]
    assert polls.waiting("g", "t") == 1
    polls.arrived("other", 0, 5)
    await settle()
    assert woken(ours) == [True, False]
    polls.close()
    await settle()
    assert woken(ours) == [True, False]
    assert ours[1].done()


@in_virtual_time
async def test_several_messages_wake_several() -> None:
    polls = PopWaiters(this_loop().clock)
    tasks = waiting(polls, -1, -1, -1)
    await settle()
    polls.arrived("t", 0, 2)
    await settle()
    assert woken(tasks) == [True, True, False]
    polls.close()


@in_virtual_time
async def test_a_pop_of_one_queue_is_not_woken_by_another() -> None:
    polls = PopWaiters(this_loop().clock)
    tasks = waiting(polls, 1, 2)
    await settle()
    polls.arrived("t", 2, 1)
    await settle()
    assert woken(tasks) == [False, True]
    polls.arrived("%RETRY%g_t", 0, 1)
    await settle()
    assert woken(tasks) == [True, True], "the retry topic concerns everyone"
    assert not polls.watched


@pytest.mark.parametrize("topic", ["%RETRY%g_t", "%RETRY%g+t"])
@in_virtual_time
async def test_a_failed_message_wakes_a_pop_in_either_retry_topic(topic: str) -> None:
    polls = PopWaiters(this_loop().clock)
    waiting = asyncio.create_task(polls.wait("g", "t", 0, 700))
    await settle()
    polls.arrived(topic, 0, 1)
    assert await waiting
    assert not polls.watched


@in_virtual_time
async def test_waiting_ends_at_the_deadline() -> None:
    loop = this_loop()
    polls = PopWaiters(loop.clock)
    assert not await polls.wait("g", "t", -1, 700)
    assert loop.time() == pytest.approx(0.7)
    assert not await polls.wait("g", "t", -1, 700)
    assert polls.waiting("g", "t") == 0


@in_virtual_time
async def test_an_unused_wakeup_goes_to_the_next_pop() -> None:
    polls = PopWaiters(this_loop().clock)
    tasks = waiting(polls, -1, -1)
    await settle()
    polls.wake("g", "t")
    tasks[0].cancel()
    await settle()
    assert tasks[0].cancelled()
    assert woken(tasks[1:]) == [True]


@in_virtual_time
async def test_no_pop_waits_after_a_close_or_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("roquet.broker.log.pop_waiters.POLLING_MAX", 1)
    assert pop.POLLING_MAX == 1_024
    polls = PopWaiters(this_loop().clock)
    assert not polls.is_full("g", "t")
    tasks = waiting(polls, -1)
    await settle()
    assert polls.is_full("g", "t")
    polls.close()
    assert not await tasks[0]
    assert not await polls.wait("g", "t", -1, SOON)


@in_virtual_time
async def test_a_pop_of_another_queue_does_not_use_up_the_wakeup() -> None:
    polls = PopWaiters(this_loop().clock)
    tasks = waiting(polls, 1, 2, 2)
    await settle()
    polls.wake("g", "t", 2)
    tasks[1].cancel()
    await settle()
    assert [task.done() for task in tasks] == [False, True, True]
    assert tasks[2].result(), "it was meant for this queue, too"
    polls.wake("g", "t")
    await settle()
    assert woken(tasks[:1]) == [True]


@in_virtual_time
async def test_a_change_of_a_topic_wakes_all_its_pops() -> None:
    polls = PopWaiters(this_loop().clock)
    ours, theirs = waiting(polls, -1, 0, 1), waiting(polls, 2, group="h")
    await settle()
    polls.look_again("other")
    await settle()
    assert woken(ours) == [False] * 3
    polls.look_again("t")
    await settle()
    assert woken(ours) + woken(theirs) == [True] * 4
