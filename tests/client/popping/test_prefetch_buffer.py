import asyncio
from typing import Any, cast

from roquet.client.popping.pop_batch import PoppedMessage
from roquet.client.popping.prefetch_buffer import PrefetchBuffer
from roquet.client.reading.message import RELEASED
from roquet.testing.clock import this_loop


class FakeMessage:
    is_held = True
    unreadable = ""


def some(count: int) -> list[PoppedMessage]:
    return cast("list[PoppedMessage]", [FakeMessage() for _ in range(count)])


async def drain(buffer: PrefetchBuffer, pause_ms: int) -> None:
    while buffer.pop() is not None:
        await this_loop().clock.sleep(pause_ms)


async def hungers(buffer: PrefetchBuffer) -> bool:
    try:
        async with asyncio.timeout(0.001):
            await buffer.wait_for_demand()
    except TimeoutError:
        return False
    return True


async def test_a_fast_member_takes_twice_as_many_each_time_up_to_the_limit() -> None:
    buffer = PrefetchBuffer(this_loop().clock, 32)
    counts = []
    for _ in range(7):
        count = await buffer.wait_for_demand()
        counts.append(count)
        buffer.put(some(count))
        await drain(buffer, 1)
    assert counts == [1, 2, 4, 8, 16, 32, 32]


async def test_a_slow_member_takes_few() -> None:
    buffer = PrefetchBuffer(this_loop().clock, 32)
    for _ in range(6):
        buffer.put(some(await buffer.wait_for_demand()))
        await drain(buffer, 100)
        assert buffer.count <= 2


async def test_a_member_that_turns_slow_takes_fewer() -> None:
    buffer = PrefetchBuffer(this_loop().clock, 32)
    for _ in range(8):
        buffer.put(some(await buffer.wait_for_demand()))
        await drain(buffer, 1)
    assert buffer.count == 32
    buffer.put(some(32))
    await drain(buffer, 100)
    assert await buffer.wait_for_demand() <= 4


async def test_idle_time_does_not_count_as_slow_handling() -> None:
    clock = this_loop().clock
    buffer = PrefetchBuffer(clock, 32)
    for _ in range(6):
        await clock.sleep(60_000)
        buffer.put(some(await buffer.wait_for_demand()))
        await drain(buffer, 1)
    assert buffer.count >= 16


async def test_nothing_more_is_taken_while_there_is_enough() -> None:
    buffer = PrefetchBuffer(this_loop().clock, 32)
    assert await hungers(buffer)
    buffer.put(some(3))
    assert not await hungers(buffer)
    buffer.pop()
    buffer.pop()
    buffer.pop()
    assert await hungers(buffer)


async def test_a_paused_buffer_wants_nothing() -> None:
    buffer = PrefetchBuffer(this_loop().clock, 32)
    buffer.pause()
    assert not await hungers(buffer)
    buffer.put(some(1))
    buffer.pop()
    assert not await hungers(buffer)
    buffer.resume()
    assert await hungers(buffer)


async def test_the_rest_can_be_taken_out() -> None:
    buffer = PrefetchBuffer(this_loop().clock, 32)
    gone: Any = FakeMessage()
    gone.is_held = False
    buffer.put([*some(2), gone])
    assert len(list(iter(buffer.pop, None))) == 2
    assert len(buffer) == 0


async def test_a_closed_buffer_releases_its_messages_and_wants_no_more() -> None:
    buffer = PrefetchBuffer(this_loop().clock, 32)
    held: Any = [ReleasableMessage() for _ in range(3)]
    buffer.put(held)
    begun: Any = buffer.pop()
    buffer.close()
    assert [message.delays for message in held] == [[], [RELEASED], [RELEASED]]
    buffer.put_first(begun)
    assert begun.delays == [RELEASED]
    assert buffer.pop() is None
    assert not await hungers(buffer)
    buffer.resume()
    assert not await hungers(buffer)


class ReleasableMessage(FakeMessage):
    """Owns itself, and records the delays after which it shall come again."""

    def __init__(self) -> None:
        self.delays: list[int] = []
        self._is_settled = False
        self._owner = self

    def retry(self, _: object, delay_ms: int) -> None:
        self.delays.append(delay_ms)
