import asyncio
from typing import Any

import pytest

from roquet.broker.log.long_polling import LongPolling, PopWaiters
from roquet.net.clock import SYSTEM_CLOCK
from roquet.rules.consumption import pop
from roquet.testing.clock import in_virtual_time, this_loop

SOON = 10_000


def soon(ms: int = 5_000) -> int:
    return SYSTEM_CLOCK.monotonic_ms() + ms


@pytest.fixture
def arrivals() -> LongPolling:
    return LongPolling(SYSTEM_CLOCK)


async def wait_for(
    arrivals: LongPolling,
    topic: str,
    queue_id: int,
    next_offset: int,
    wanted: frozenset[int] | None = None,
) -> asyncio.Task[bool]:
    """A task that waits already when this returns."""
    waiting = arrivals.reach(topic, queue_id, next_offset, wanted, soon())
    task = asyncio.create_task(waiting)
    await asyncio.sleep(0)
    return task


async def test_the_next_message_wakes_waiting_readers(arrivals: LongPolling) -> None:
    task = await wait_for(arrivals, "orders", 0, 8)
    arrivals.arrived("orders", 0, 7, [0])
    assert await task


async def test_other_queues_and_topics_wake_no_reader(arrivals: LongPolling) -> None:
    task = await wait_for(arrivals, "orders", 0, 8)
    arrivals.arrived("orders", 1, 7, [0])
    arrivals.arrived("other", 0, 7, [0])
    await asyncio.sleep(0.01)
    assert not task.done()
    task.cancel()


async def test_only_a_wanted_tag_wakes(arrivals: LongPolling) -> None:
    picky = await wait_for(arrivals, "orders", 0, 8, wanted=frozenset({5}))
    anything = await wait_for(arrivals, "orders", 0, 8)
    arrivals.arrived("orders", 0, 7, [4])
    assert await anything
    assert not picky.done()
    arrivals.arrived("orders", 0, 8, [5])
    assert await picky


async def test_a_reader_is_woken_up_to_the_last_wanted_message(arrivals: LongPolling) -> None:
    picky = await wait_for(arrivals, "orders", 0, 8, wanted=frozenset({5}))
    arrivals.arrived("orders", 0, 7, [5, 5, 4])
    assert await picky
    assert await arrivals.reach("orders", 0, 9, frozenset({5}), soon())
    assert not await arrivals.reach("orders", 0, 10, frozenset({5}), soon(10))


async def test_the_time_may_be_over_first(arrivals: LongPolling) -> None:
    assert not await arrivals.reach("orders", 0, 8, None, soon(10))


async def test_one_message_wakes_many_waiting_readers(arrivals: LongPolling) -> None:
    tasks = [await wait_for(arrivals, "orders", 0, 1) for _ in range(100)]
    assert len(arrivals) == 100
    arrivals.arrived("orders", 0, 0, [0])
    assert all(await asyncio.gather(*tasks))
    assert len(arrivals) == 0


async def test_a_reader_that_waits_again_continues_from_its_watermark(
    arrivals: LongPolling,
) -> None:
    for next_offset in (1, 2, 3):
        task = await wait_for(arrivals, "orders", 0, next_offset)
        arrivals.arrived("orders", 0, next_offset - 1, [0])
        assert await task


async def test_a_sweep_removes_only_watermarks_without_readers(arrivals: LongPolling) -> None:
    task = await wait_for(arrivals, "orders", 0, 1)
    await arrivals.reach("orders", 1, 1, None, soon(1))
    await arrivals.reach("other", 0, 1, None, soon(1))
    arrivals.sweep()
    assert len(arrivals) == 1
    arrivals.arrived("orders", 0, 0, [0])
    assert await task
    arrivals.sweep()
    assert len(arrivals) == 0


async def test_a_close_releases_all_readers_and_admits_none_afterwards(
    arrivals: LongPolling,
) -> None:
    task = await wait_for(arrivals, "orders", 0, 1)
    arrivals.close()
    assert not await task
    assert not await arrivals.reach("orders", 0, 1, None, soon())


async def test_a_change_of_a_topic_wakes_all_its_readers(arrivals: LongPolling) -> None:
    ours = [await wait_for(arrivals, "orders", queue_id, 8) for queue_id in (0, 1)]
    others = await wait_for(arrivals, "others", 0, 8)
    arrivals.look_again(["orders", "unknown"])
    assert [await task for task in ours] == [False, False]
    assert len(arrivals) == 1
    again = await wait_for(arrivals, "orders", 0, 1)
    arrivals.arrived("orders", 0, 0, [0])
    assert await again, "a topic made anew begins at 0"
    others.cancel()


async def test_hidden_messages_wake_once_they_are_shown(arrivals: LongPolling) -> None:
    end = 100
    arrivals.hold(lambda: end)
    task = await wait_for(arrivals, "orders", 0, 8)
    arrivals.arrived("orders", 0, 7, [0])
    arrivals.show(99)
    await asyncio.sleep(0.01)
    assert not task.done()
    arrivals.show(100)
    assert await task


async def test_each_hidden_message_is_told_of(arrivals: LongPolling) -> None:
    hidden: list[int] = []
    arrivals.on_hidden = lambda: hidden.append(1)
    arrivals.arrived("orders", 0, 6, [0])
    assert not hidden
    arrivals.hold(lambda: 100)
    arrivals.arrived("orders", 0, 7, [0])
    assert hidden == [1]


async def test_where_nothing_is_hidden_any_more_messages_wake_at_once(
    arrivals: LongPolling,
) -> None:
    arrivals.hold(lambda: 100)
    task = await wait_for(arrivals, "orders", 0, 8)
    arrivals.arrived("orders", 0, 7, [0])
    arrivals.show(None)
    assert await task
    later = await wait_for(arrivals, "orders", 0, 9)
    arrivals.arrived("orders", 0, 8, [0])
    assert await later


async def test_hidden_messages_of_a_log_that_was_cut_wake_nobody(arrivals: LongPolling) -> None:
    arrivals.hold(lambda: 100)
    task = await wait_for(arrivals, "orders", 0, 8)
    arrivals.arrived("orders", 0, 7, [0])
    arrivals.forget_hidden()
    arrivals.show(100)
    await asyncio.sleep(0.01)
    assert not task.done()
    task.cancel()


async def test_with_too_many_hidden_messages_all_waiters_look_again_when_some_are_shown(
    arrivals: LongPolling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.broker.log.long_polling.HIDDEN_MAX", 2)
    ends = iter(range(100, 105))
    arrivals.hold(lambda: next(ends))
    first = await wait_for(arrivals, "orders", 0, 1)
    for offset in range(3):
        arrivals.arrived("orders", 0, offset, [0])
    arrivals.show(100)
    await asyncio.wait_for(first, 1)
    second = await wait_for(arrivals, "orders", 0, 3)
    arrivals.show(101)
    await asyncio.wait_for(second, 1)
    third = await wait_for(arrivals, "orders", 0, 3)
    arrivals.show(102)
    assert await third, "what was not forgotten arrives as ever"


def waiting(polls: PopWaiters, *queue_ids: int, group: str = "g") -> list[asyncio.Task[bool]]:
    return [asyncio.create_task(polls.wait(group, "t", queue_id, SOON)) for queue_id in queue_ids]


def woken(tasks: list[asyncio.Task[bool]]) -> list[bool]:
    return [task.done() and task.result() for task in tasks]


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_the_tags_of_a_batch_are_looked_at_once_whoever_waits(
    arrivals: LongPolling,
) -> None:
    looks: list[int] = []

    class CountedCodes(list[int]):
        def __getitem__(self, index: Any) -> Any:
            looks.append(index)
            return super().__getitem__(index)

    tasks = [await wait_for(arrivals, "orders", 0, 8, frozenset({n})) for n in range(100)]
    arrivals.arrived("orders", 0, 7, CountedCodes([1, 2, 1, *range(200, 300)]))
    await settle()
    assert [n for n, task in enumerate(tasks) if task.done()] == [1, 2]
    assert len(looks) <= 103
    arrivals.close()
    await asyncio.gather(*tasks)


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


@in_virtual_time
async def test_pops_of_one_queue_and_of_any_are_woken_in_the_order_in_which_they_came() -> None:
    polls = PopWaiters(this_loop().clock)
    tasks = waiting(polls, 2, -1, 1, 2, -1)
    await settle()
    polls.arrived("t", 2, 3)
    await settle()
    assert woken(tasks) == [True, True, False, True, False]
    polls.wake("g", "t")
    await settle()
    assert woken(tasks) == [True, True, True, True, False]
    polls.look_again("t")
    await settle()
    assert woken(tasks) == [True] * 5
    assert not polls.watched


@in_virtual_time
async def test_a_message_costs_no_look_at_pops_that_wait_for_other_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[object] = []

    class CountedFuture(asyncio.Future[int]):
        def done(self) -> bool:
            looks.append(self)
            return super().done()

    loop = this_loop()
    monkeypatch.setattr(loop, "create_future", lambda: CountedFuture(loop=loop))
    polls = PopWaiters(loop.clock)
    tasks = waiting(polls, *[0] * 100)
    await settle()
    looks.clear()
    polls.arrived("t", 1, 1)
    assert looks == []
    polls.arrived("t", 0, 1)
    assert len(looks) in (1, 2)
    polls.close()
    await settle()
    assert woken(tasks) == [True, *[False] * 99]


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
    monkeypatch.setattr("roquet.broker.log.long_polling.POLLING_MAX", 1)
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
