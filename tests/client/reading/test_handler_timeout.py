"""Handlers that hang are found."""

import asyncio
from typing import Any

from roquet.client.config import ConsumerConfig
from roquet.client.reading.handler_timeout import WorkerSlot, watch_timeouts
from roquet.testing.clock import in_virtual_time, this_loop


def at(message: object) -> WorkerSlot:
    slot = WorkerSlot()
    slot.message = message  # type: ignore[assignment]
    return slot


def test_a_worker_is_late_when_it_is_seen_at_one_message_for_too_long() -> None:
    slot = at("a")

    def looks(*times_ms: int) -> list[Any]:
        return [slot.late(ms, 100) for ms in times_ms]

    assert looks(0, 99, 100) == [None, None, "a"]
    slot.message = "b"  # type: ignore[assignment]
    assert looks(150, 249, 250) == [None, None, "b"]
    slot.message = None
    assert slot.late(10_000, 100) is None


@in_virtual_time
async def test_a_timeout_is_noticed_within_a_fifteenth_of_the_limit() -> None:
    reported: list[tuple[Any, int]] = []
    clock = this_loop().clock
    slot, idle = at("a"), WorkerSlot()

    def late(who: WorkerSlot, message: Any) -> None:
        reported.append((message, clock.monotonic_ms()))
        who.is_left = True

    config = ConsumerConfig(clock=clock, handler_limit_ms=15_000)
    watching = asyncio.create_task(watch_timeouts([slot, idle], late, config))
    await asyncio.sleep(100)
    watching.cancel()
    assert reported == [("a", 16_000)]


@in_virtual_time
async def test_ordered_workers_are_never_late() -> None:
    late: list[object] = []
    await watch_timeouts([at("a")], lambda *args: late.append(args), ConsumerConfig(ordered=True))
    assert (late, this_loop().time()) == ([], 0), "it ends at once"
