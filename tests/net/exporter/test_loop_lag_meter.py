import asyncio
import time

from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.exporter.loop_lag_meter import LoopLagMeter


async def test_a_loop_that_is_held_up_is_measured() -> None:
    meter = LoopLagMeter(SYSTEM_CLOCK)
    task = asyncio.create_task(meter.serve())
    await asyncio.sleep(0.05)
    time.sleep(0.25)  # noqa: ASYNC251 - this is what is measured
    await asyncio.sleep(0.15)
    task.cancel()
    assert meter.lags.count >= 2
    assert meter.lags.sum >= 0.15
