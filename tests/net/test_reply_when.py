"""A handler's reply that a number decides can be awaited like any other."""

import asyncio

import pytest

from roquet.net.async_watermark import AsyncWatermark
from roquet.net.reply_when import ReplyWhen
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.calls.route import ValueReply


async def wait_longer() -> ValueReply:
    await asyncio.sleep(1)
    return ValueReply(value="late")


@pytest.mark.parametrize(
    ("value", "expected", "at_ms"), [(5, "soon", 200), (4, "late", 1_500), (9, "soon", 200)]
)
@in_virtual_time
async def test_it_is_awaited_until_the_number_has_grown_or_the_deadline(
    value: int, expected: str, at_ms: int
) -> None:
    clock = this_loop().clock
    mark = AsyncWatermark(3, clock=clock)
    reply = ReplyWhen(
        mark, 5, 0, 500, lambda reached: ValueReply(value="soon") if reached else wait_longer()
    )
    waiting = asyncio.ensure_future(reply)
    await clock.sleep(200)
    mark.advance(value)
    assert await waiting == ValueReply(value=expected)
    assert clock.monotonic_ms() == at_ms
