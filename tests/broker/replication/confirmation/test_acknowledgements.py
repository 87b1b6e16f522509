"""By name: HAServerTest of Apache RocketMQ (in-sync count, one and many waiting requests)."""

import asyncio
from typing import Any

import pytest
from tests.broker.conftest import background
from tests.broker.replication.conftest import SYNC, MakeParts, ReplicationParts

from roquet.broker.replication.confirmation.acknowledgements import Acknowledgements, StatusWait
from roquet.broker.replication.role import Role
from roquet.model.errors import CallRefused, StoreFailed
from roquet.net.async_watermark import AsyncWatermark
from roquet.rules.replication.acknowledgement import BrokerRole, DeploymentMode, PutStatus
from roquet.testing.clock import this_loop

pytestmark = pytest.mark.virtual_time

THREE: dict[str, Any] = {**SYNC, "in_sync_replicas": 3}


async def status_after_ms(parts: ReplicationParts, position: int) -> tuple[PutStatus, int]:
    """A status, and how long it took."""
    began_ms = parts.clock.monotonic_ms()
    status = await parts.acknowledgements.status(position)
    return status, parts.clock.monotonic_ms() - began_ms


async def test_who_waits_for_nobody_pays_for_nothing(parts: MakeParts) -> None:
    assert not parts().acknowledgements.is_needed
    assert not parts(broker_role=BrokerRole.SYNC_MASTER).acknowledgements.is_needed
    assert not parts(in_sync_replicas=2).acknowledgements.is_needed, "an ASYNC_MASTER"
    assert parts(sync_flush=True).acknowledgements.is_needed
    assert parts(**SYNC).acknowledgements.is_needed


async def test_as_many_logs_as_needed_have_to_hold_a_message(parts: MakeParts) -> None:
    made = parts(**THREE)
    acknowledgements, end = made.acknowledgements, made.append()
    waiting = asyncio.create_task(status_after_ms(made, end))
    await made.clock.sleep(100)
    acknowledgements.report(1, "10.0.0.1", end)
    await made.clock.sleep(100)
    assert (waiting.done(), acknowledgements.waiting) == (False, 1)
    acknowledgements.report(2, "10.0.0.2", end - 1)
    acknowledgements.report(2, "10.0.0.2", end)
    assert await waiting == (PutStatus.PUT_OK, 200)
    assert acknowledgements.replicated == end


async def test_too_few_reports_in_time_are_a_timeout(parts: MakeParts) -> None:
    made = parts(**SYNC, slave_timeout=700)
    made.acknowledgements.report(1, "10.0.0.1", made.append())
    assert await status_after_ms(made, made.append()) == (PutStatus.FLUSH_SLAVE_TIMEOUT, 700)


async def test_a_connection_that_has_ended_acknowledges_nothing_more(parts: MakeParts) -> None:
    made = parts(**THREE, slave_timeout=100)
    acknowledgements, end = made.acknowledgements, made.append()
    acknowledgements.report(1, "10.0.0.1", end)
    acknowledgements.forget(1)
    acknowledgements.report(2, "10.0.0.2", end)
    assert (await status_after_ms(made, end))[0] is PutStatus.FLUSH_SLAVE_TIMEOUT
    acknowledgements.forget(7)


async def test_disk_and_replicas_are_waited_for_side_by_side(parts: MakeParts) -> None:
    made = parts(**SYNC, sync_flush=True, sync_flush_timeout=1_000, slave_timeout=1_500)
    end = made.append()
    assert await status_after_ms(made, end) == (PutStatus.FLUSH_SLAVE_TIMEOUT, 1_500), (
        "the replicas' failure wins"
    )
    made.acknowledgements.report(1, "10.0.0.1", end)
    assert await status_after_ms(made, end) == (PutStatus.FLUSH_DISK_TIMEOUT, 1_000)
    async with background(made.flush.serve()):
        assert await status_after_ms(made, end) == (PutStatus.PUT_OK, 0)


async def test_a_failed_disk_leaves_open_whether_the_message_survives(
    parts: MakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = parts(sync_flush=True)
    end = made.append()
    made.store.fail("the disk is gone")
    with pytest.raises(StoreFailed, match="the disk is gone"):
        await made.acknowledgements.status(end)


async def test_a_changed_setting_holds_for_those_who_wait(parts: MakeParts) -> None:
    made = parts(**THREE)
    end = made.append()
    made.acknowledgements.report(1, "10.0.0.1", end)
    waiting = asyncio.create_task(status_after_ms(made, end))
    await made.clock.sleep(500)
    made.settings.change({"inSyncReplicas": "4"}, 0)
    await made.clock.sleep(500)
    assert not waiting.done()
    made.settings.change({"inSyncReplicas": "2"}, 0)
    assert await waiting == (PutStatus.PUT_OK, 1_000)
    made.settings.change({"inSyncReplicas": "3"}, 0)
    assert made.acknowledgements.replicated == 0, "one replica has it, and two have to now"


async def test_a_broker_that_is_no_master_any_more_acknowledges_no_message_that_it_alone_has(
    parts: MakeParts,
) -> None:
    made = parts(**SYNC)
    waiting = asyncio.create_task(status_after_ms(made, made.append()))
    await made.clock.sleep(10)
    made.role.change(Role(role=BrokerRole.SLAVE, broker_id=1))
    assert await waiting == (PutStatus.FLUSH_SLAVE_TIMEOUT, 10)
    assert not made.acknowledgements.is_needed


async def test_logs_in_sync_are_counted_by_their_gap(parts: MakeParts) -> None:
    made = parts(**SYNC, ha_gap_max=1_000)
    end = made.append(100)
    assert made.acknowledgements.in_sync == 1
    for connection, report in enumerate((end, end - 999, end - 1_000)):
        made.acknowledgements.report(connection, f"10.0.0.{connection}", report)
    assert made.acknowledgements.in_sync == 3
    made.settings.change({"haMaxGapNotInSync": "1001"}, 0)
    assert made.acknowledgements.in_sync == 4


async def test_a_send_counts_no_logs_in_sync_where_roles_are_fixed(
    parts: MakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(_: Acknowledgements) -> int:
        raise AssertionError("how many logs are needed does not depend on it")

    made = parts(**SYNC)
    monkeypatch.setattr(Acknowledgements, "in_sync", property(count))
    assert await made.acknowledgements.status(made.append()) is PutStatus.FLUSH_SLAVE_TIMEOUT


async def test_too_few_logs_in_sync_refuse_messages_where_roles_may_change(
    parts: MakeParts,
) -> None:
    parts(**SYNC).acknowledgements.check()
    made = parts(mode=DeploymentMode.ACTING_MASTER, **SYNC, slave_timeout=50)
    acknowledgements, end = made.acknowledgements, made.append()
    assert acknowledgements.is_needed
    with pytest.raises(CallRefused, match="in-sync replicas not enough") as refused:
        acknowledgements.check()
    assert refused.value.code == 1
    acknowledgements.check(waits=False)
    assert (await status_after_ms(made, end))[0] is PutStatus.FLUSH_SLAVE_TIMEOUT
    acknowledgements.report(1, "10.0.0.1", end)
    acknowledgements.check()
    made.settings.change({"enableAutoInSyncReplicas": "true", "minInSyncReplicas": "1"}, 0)
    acknowledgements.forget(1)
    acknowledgements.check()


async def test_two_connections_of_one_replica_are_one_log(parts: MakeParts) -> None:
    made = parts(**THREE, slave_timeout=100)
    acknowledgements, end = made.acknowledgements, made.append()
    acknowledgements.report(1, "10.0.0.2", end)
    acknowledgements.report(2, "10.0.0.2", end)  # nobody knows yet that the first one is dead
    assert acknowledgements.in_sync == 2
    assert (await status_after_ms(made, end))[0] is PutStatus.FLUSH_SLAVE_TIMEOUT
    acknowledgements.forget(1)
    acknowledgements.report(3, "10.0.0.3", end)
    assert (await status_after_ms(made, end))[0] is PutStatus.PUT_OK


async def test_replicas_of_one_host_count_as_they_report(parts: MakeParts) -> None:
    made = parts(**THREE)
    acknowledgements, end = made.acknowledgements, made.append()
    waiting = asyncio.create_task(status_after_ms(made, end))
    acknowledgements.report(1, "10.0.0.2", end)
    acknowledgements.report(2, "10.0.0.2", end)
    await made.clock.sleep(100)
    assert not waiting.done()
    acknowledgements.report(1, "10.0.0.2", end)
    await made.clock.sleep(100)
    assert not waiting.done(), "its kernel may have sent the last report again"
    acknowledgements.report(1, "10.0.0.2", end)
    assert await waiting == (PutStatus.PUT_OK, 200)
    assert acknowledgements.in_sync == 3


async def test_where_a_replica_may_act_the_number_of_logs_adapts_as_replicas_come(
    parts: MakeParts,
) -> None:
    settings = {**SYNC, "auto_in_sync_replicas": True, "slave_timeout": 50}
    made = parts(mode=DeploymentMode.ACTING_MASTER, **settings)
    acknowledgements = made.acknowledgements
    assert acknowledgements.is_short, "it has to be asked before each message"
    assert acknowledgements.is_needed
    assert (await status_after_ms(made, made.append()))[0] is PutStatus.PUT_OK
    acknowledgements.report(1, "10.0.0.2", 0)
    end = made.append()
    assert (await status_after_ms(made, end))[0] is PutStatus.FLUSH_SLAVE_TIMEOUT
    acknowledgements.report(1, "10.0.0.2", end)
    assert (await status_after_ms(made, end))[0] is PutStatus.PUT_OK


async def test_one_report_decides_all_that_wait_for_it(parts: MakeParts) -> None:
    made = parts(**SYNC)
    acknowledgements = made.acknowledgements
    waits = [acknowledgements.wait(made.append()) for _ in range(3)]
    acknowledgements.report(1, "10.0.0.1", made.append())
    for wait in waits:
        assert wait is not None
        assert wait.mark.value >= wait.position
        assert wait.status(True) is PutStatus.PUT_OK
        assert await wait is PutStatus.PUT_OK


async def test_settings_that_change_meanwhile_begin_another_wait(parts: MakeParts) -> None:
    made = parts(**SYNC, slave_timeout=700)
    wait = made.acknowledgements.wait(made.append())
    assert wait is not None
    status = asyncio.ensure_future(wait)
    await made.clock.sleep(300)
    made.settings.change({"inSyncReplicas": "3"}, made.clock.now_ms())
    began_ms = made.clock.monotonic_ms()
    assert await status is PutStatus.FLUSH_SLAVE_TIMEOUT
    assert made.clock.monotonic_ms() - began_ms == 400, "as long as it had left"


async def test_nobody_waits_for_what_is_there_or_for_several_conditions(parts: MakeParts) -> None:
    made = parts(**SYNC)
    end = made.append()
    made.acknowledgements.report(1, "10.0.0.1", end)
    assert made.acknowledgements.wait(end) is None
    both = parts(**SYNC, sync_flush=True)
    assert both.acknowledgements.wait(both.append()) is None


async def test_a_status_that_takes_longer_is_awaited() -> None:
    async def decide(wait: StatusWait, reached: bool) -> PutStatus:
        await asyncio.sleep(0)
        assert (wait.position, reached) == (10, False)
        return PutStatus.FLUSH_SLAVE_TIMEOUT

    clock = this_loop().clock
    now_ms = clock.monotonic_ms()
    wait = StatusWait(decide, AsyncWatermark(clock=clock), 10, now_ms, now_ms + 50)
    assert await wait is PutStatus.FLUSH_SLAVE_TIMEOUT
    assert clock.monotonic_ms() == now_ms + 50
