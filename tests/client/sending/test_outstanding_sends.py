import asyncio

import pytest

from roquet.client.sending.outstanding_sends import KeyOrder, OrderKey, OutstandingSends
from roquet.model.errors import CallError
from roquet.testing.clock import this_loop


async def test_a_flush_waits_for_what_began_before_it_and_for_nothing_later() -> None:
    sends = OutstandingSends()

    async def send(seconds: float) -> None:
        with sends.current:
            await asyncio.sleep(seconds)

    loop = asyncio.get_running_loop()
    before = asyncio.create_task(send(1))
    await asyncio.sleep(0)
    flush = asyncio.create_task(sends.flushed(None))
    await asyncio.sleep(0)
    later = asyncio.create_task(send(100))
    assert await flush
    assert (before.done(), later.done(), loop.time()) == (True, False, 1)
    assert not await sends.flushed(2_000)
    assert loop.time() == 3
    assert not await sends.flushed(0), "a later flush waits for the same sends"
    assert await sends.flushed(None)
    assert loop.time() == 100
    assert await sends.flushed(0)


KEY = ("t", 1)


async def pass_through(line: KeyOrder, name: str, seen: list[str], key: OrderKey = KEY) -> None:
    ticket = await line.acquire(key, 10_000)
    try:
        seen.append(f"{name} in")
        await asyncio.sleep(1)
        seen.append(f"{name} out")
    finally:
        line.release(key, ticket)


async def test_one_key_goes_one_by_one_and_others_do_not_wait() -> None:
    line, seen = KeyOrder(this_loop().clock), list[str]()
    await asyncio.gather(
        pass_through(line, "a", seen),
        pass_through(line, "b", seen),
        pass_through(line, "other", seen, ("t", 2)),
        pass_through(line, "c", seen),
    )
    assert [one for one in seen if "other" not in one] == [
        "a in", "a out", "b in", "b out", "c in", "c out",
    ]  # fmt: skip
    assert seen.index("other in") == 1
    assert len(line) == 0


async def test_a_cancelled_send_keeps_the_order_of_its_key() -> None:
    line, seen = KeyOrder(this_loop().clock), list[str]()
    tasks = [asyncio.create_task(pass_through(line, name, seen)) for name in "abc"]
    await asyncio.sleep(0.5)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert seen == ["a in", "a out", "c in", "c out"]
    assert len(line) == 0


async def test_a_send_that_waits_too_long_for_its_key_fails_definitely() -> None:
    line = KeyOrder(this_loop().clock)
    first = await line.acquire(KEY, 10_000)
    with pytest.raises(CallError, match="it was not sent") as caught:
        await line.acquire(KEY, 2_000)
    assert caught.value.definite
    assert this_loop().clock.monotonic_ms() == 2_000
    line.release(KEY, first)
    await asyncio.sleep(0)
    assert len(line) == 0
