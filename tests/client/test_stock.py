import asyncio
from typing import Any, cast

from roquet.client.received import ReceivedMessage
from roquet.client.stock import Stock
from roquet.testing.clock import in_virtual_time, this_loop


class Message:
    is_held = True


def some(count: int) -> list[ReceivedMessage]:
    return cast("list[ReceivedMessage]", [Message() for _ in range(count)])


async def drain(stock: Stock, pause_ms: int) -> None:
    while stock.pop() is not None:
        await this_loop().clock.sleep(pause_ms)


async def hungers(stock: Stock) -> bool:
    try:
        async with asyncio.timeout(0.001):
            await stock.hunger()
    except TimeoutError:
        return False
    return True


@in_virtual_time
async def test_a_fast_member_takes_twice_as_many_each_time_up_to_the_limit() -> None:
    stock = Stock(this_loop().clock, 32)
    counts = []
    for _ in range(7):
        count = await stock.hunger()
        counts.append(count)
        stock.put(some(count))
        await drain(stock, 1)
    assert counts == [1, 2, 4, 8, 16, 32, 32]


@in_virtual_time
async def test_a_slow_member_takes_few() -> None:
    stock = Stock(this_loop().clock, 32)
    for _ in range(6):
        stock.put(some(await stock.hunger()))
        await drain(stock, 100)
        assert stock.count <= 2


@in_virtual_time
async def test_a_member_that_turns_slow_takes_fewer() -> None:
    stock = Stock(this_loop().clock, 32)
    for _ in range(8):
        stock.put(some(await stock.hunger()))
        await drain(stock, 1)
    assert stock.count == 32
    stock.put(some(32))
    await drain(stock, 100)
    assert await stock.hunger() <= 4


@in_virtual_time
async def test_idle_time_makes_nobody_slow() -> None:
    clock = this_loop().clock
    stock = Stock(clock, 32)
    for _ in range(6):
        await clock.sleep(60_000)
        stock.put(some(await stock.hunger()))
        await drain(stock, 1)
    assert stock.count >= 16


@in_virtual_time
async def test_nothing_more_is_taken_while_there_is_enough() -> None:
    stock = Stock(this_loop().clock, 32)
    assert await hungers(stock)
    stock.put(some(3))
    assert not await hungers(stock)
    stock.pop()
    stock.pop()
    stock.pop()
    assert await hungers(stock)


@in_virtual_time
async def test_a_paused_stock_wants_nothing() -> None:
    stock = Stock(this_loop().clock, 32)
    stock.pause()
    assert not await hungers(stock)
    stock.put(some(1))
    stock.pop()
    assert not await hungers(stock)
    stock.resume()
    assert await hungers(stock)


@in_virtual_time
async def test_the_rest_can_be_taken_out() -> None:
    stock = Stock(this_loop().clock, 32)
    gone: Any = Message()
    gone.is_held = False
    stock.put([*some(2), gone])
    assert len(stock.rest()) == 2
    assert len(stock) == 0


@in_virtual_time
async def test_a_closed_stock_gives_back_what_it_holds_and_wants_nothing_more() -> None:
    stock = Stock(this_loop().clock, 32)
    held: Any = [Holding() for _ in range(3)]
    stock.put(held)
    begun: Any = stock.pop()
    stock.close()
    assert [message.delays for message in held] == [[], [1], [1]]
    stock.put_first(begun)
    assert begun.delays == [1]
    assert stock.pop() is None
    assert not await hungers(stock)
    stock.resume()
    assert not await hungers(stock)


class Holding(Message):
    def __init__(self) -> None:
        self.delays: list[int] = []

    def fail(self, delay_ms: int) -> None:
        self.delays.append(delay_ms)
