import asyncio
import time

from roquet.net.clock import SYSTEM_CLOCK
from roquet.observe.process_usage import LoopLagMeter, process_usage


def test_a_process_that_works_uses_the_processor() -> None:
    before = process_usage()
    sum(range(3_000_000))
    after = process_usage()
    assert after.cpu_s >= before.cpu_s > 0
    assert after.minor_faults is None or after.minor_faults > 0


async def test_a_loop_that_is_held_up_is_measured() -> None:
    meter = LoopLagMeter(SYSTEM_CLOCK)
    task = asyncio.create_task(meter.serve())
    await asyncio.sleep(0.05)
    time.sleep(0.25)  # noqa: ASYNC251 - this is what is measured
    await asyncio.sleep(0.15)
    task.cancel()
    assert meter.lags.count >= 2
    assert meter.lags.sum >= 0.15
