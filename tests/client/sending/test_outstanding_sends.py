import asyncio

from roquet.client.sending.outstanding_sends import OutstandingSends
from roquet.testing.clock import in_virtual_time


@in_virtual_time
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
