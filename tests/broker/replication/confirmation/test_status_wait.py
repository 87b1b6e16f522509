"""A sender waits for replicas by one future, and by more where that has decided nothing."""

import asyncio

from tests.broker.replication.conftest import SYNC, MakeParts

from roquet.broker.replication.confirmation.status_wait import StatusWait
from roquet.net.async_watermark import AsyncWatermark
from roquet.rules.replication.acknowledgement import PutStatus
from roquet.testing.clock import in_virtual_time, this_loop


def test_one_report_decides_all_that_wait_for_it(parts: MakeParts) -> None:
    @in_virtual_time
    async def run() -> None:
        made = parts(**SYNC)
        acknowledgements = made.acknowledgements
        waits = [acknowledgements.wait(made.append()) for _ in range(3)]
        acknowledgements.report(1, "10.0.0.1", made.append())
        for wait in waits:
            assert wait is not None
            assert wait.mark.value >= wait.position
            assert wait.status(True) is PutStatus.PUT_OK
            assert await wait is PutStatus.PUT_OK

    run()


def test_settings_that_change_meanwhile_begin_another_wait(parts: MakeParts) -> None:
    @in_virtual_time
    async def run() -> None:
        made = parts(**SYNC, slave_timeout=700)
        wait = made.acknowledgements.wait(made.append())
        assert wait is not None
        status = asyncio.ensure_future(wait)
        await made.clock.sleep(300)
        made.settings.change({"inSyncReplicas": "3"}, made.clock.now_ms())
        began_ms = made.clock.monotonic_ms()
        assert await status is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert made.clock.monotonic_ms() - began_ms == 400, "as long as it had left"

    run()


def test_nobody_waits_for_what_is_there_or_for_several_conditions(parts: MakeParts) -> None:
    @in_virtual_time
    async def run() -> None:
        made = parts(**SYNC)
        end = made.append()
        made.acknowledgements.report(1, "10.0.0.1", end)
        assert made.acknowledgements.wait(end) is None
        both = parts(**SYNC, sync_flush=True)
        assert both.acknowledgements.wait(both.append()) is None

    run()


def test_a_status_that_takes_longer_is_awaited() -> None:
    class Slow:
        async def status_after(self, wait: StatusWait, reached: bool) -> PutStatus:
            await asyncio.sleep(0)
            assert (wait.position, reached) == (10, False)
            return PutStatus.FLUSH_SLAVE_TIMEOUT

    @in_virtual_time
    async def run() -> None:
        clock = this_loop().clock
        now_ms = clock.monotonic_ms()
        wait = StatusWait(Slow(), AsyncWatermark(clock=clock), 10, now_ms, now_ms + 50)
        assert await wait is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert clock.monotonic_ms() == now_ms + 50

    run()
