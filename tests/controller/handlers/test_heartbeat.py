from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.controller.conftest import LEASE_MS, broker, controller, stored, trio
from tests.namesrv.conftest import FakePeer

from roquet.controller import liveness
from roquet.controller.handlers.heartbeat import known_set, live_broker
from roquet.model.errors import CallRefused
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.route import BrokerHeartbeat


def call(**fields: object) -> BrokerHeartbeat:
    given = {"cluster_name": "C", "broker_addr": "h:1", "broker_name": "bc", **fields}
    return BrokerHeartbeat(**given)  # type: ignore[arg-type]


def test_absent_fields_have_apaches_defaults() -> None:
    broker = live_broker(call(broker_id=1), FakePeer(), 77)
    assert broker.seen.limit_ms == 10_000
    candidate = broker.candidate
    assert (candidate.epoch, candidate.end, candidate.priority) == (-1, 0, 2**31 - 1)
    assert candidate.heard_ms == 77
    assert not candidate.is_learner


def test_a_broker_that_only_learns_says_so() -> None:
    assert live_broker(call(broker_id=1, is_learner=True), FakePeer(), 0).candidate.is_learner


@pytest.mark.parametrize(("said_ms", "limit_ms"), [(-5, 1), (1, 1), (10**15, 120_000)])
def test_a_time_out_has_bounds(said_ms: int, limit_ms: int) -> None:
    heartbeat = call(broker_id=1, heartbeat_timeout_mills=said_ms)
    assert live_broker(heartbeat, FakePeer(), 0).seen.limit_ms == limit_ms


@in_virtual_time
async def test_a_heartbeat_without_an_id_or_with_a_wrong_one_is_refused() -> None:
    async with controller() as server, broker(1) as one:
        for broker_id in (None, 0, -3):
            with pytest.raises(CallRefused) as refused:
                await one.channel.call(call(broker_id=broker_id))
            assert refused.value.code == 2005
        assert server.controller.liveness.count == 0


@in_virtual_time
async def test_too_many_brokers_are_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "BROKERS_MAX", 0)
    async with controller(), broker(1) as one:
        with pytest.raises(CallRefused, match="too many brokers"):
            await one.beat()


@in_virtual_time
async def test_a_master_of_an_unknown_group_gets_no_lease() -> None:
    async with controller(), broker(1) as one:
        with pytest.raises(CallRefused) as refused:
            await one.beat(lease_epoch=1)
        assert refused.value.code == 2008


@pytest.mark.parametrize(
    ("text", "members"),
    [("1,3", {1, 3}), ("2", {2}), ("", None), ("1;3", None), ("1,,2", None), ("-1", None)],
)
def test_the_set_that_a_master_knows_is_read_or_left_alone(
    text: str, members: set[int] | None
) -> None:
    heartbeat = call(broker_id=1, lease_epoch=4, sync_state_set=text, sync_state_set_epoch=9)
    known = known_set(heartbeat)
    assert (set(known.members) if known else None) == members
    assert known_set(call(broker_id=1, lease_epoch=4)) is None


@in_virtual_time
async def test_after_an_old_copy_was_restored_the_masters_own_set_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with controller() as server, broker(1) as one, broker(2) as two, broker(3) as three:
        for each in (one, two, three):
            await each.apply()
            await each.beat()
        await one.elect()
        state = server.controller.leadership.leader_state()
        version = (await one.replica_info()).master_epoch or 0
        assert await one.alter(version, 1, 1, 2, 3) == {1, 2, 3}
        old = state.group("bc")
        assert old is not None
        await one.beat(lease_epoch=1, sync_state_set="1", sync_state_set_epoch=4)
        found = state.group("bc")
        assert found is not None
        assert (found.in_sync, found.set_version) == (frozenset({1}), 4)
        assert "the stored sync-state set was older" in caplog.text
        await one.beat(lease_epoch=1, sync_state_set="1,2,3", sync_state_set_epoch=2)
        assert state.group("bc") == found, "a late heartbeat changes nothing"


@in_virtual_time
async def test_a_broker_of_another_cluster_is_refused_and_says_nothing_about_the_group() -> None:
    async with controller() as server, AsyncExitStack() as stack:
        one, _, _ = await trio(stack)
        stray = await stack.enter_async_context(broker(7))
        stray.cluster = "x"
        with pytest.raises(CallRefused, match="of cluster C, not x") as refused:
            await stray.beat(epoch=50)
        assert refused.value.code == 2010
        assert server.controller.elections.epoch_known("bc") == 0
        assert (await one.beat(lease_epoch=1)).lease_millis == LEASE_MS


@in_virtual_time
async def test_a_broker_of_another_cluster_that_was_heard_before_does_not_count() -> None:
    async with controller() as server, AsyncExitStack() as stack:
        one, _, _ = await trio(stack)
        stray = live_broker(call(cluster_name="x", broker_id=2, epoch=50), FakePeer(), 0)
        server.controller.liveness.note("bc", 2, stray)
        assert (await one.beat(lease_epoch=1)).lease_millis == LEASE_MS


@pytest.mark.parametrize("fields", [{"lease_epoch": 1}, {"releases_lease": True}, {}])
@in_virtual_time
async def test_a_process_that_has_the_id_of_a_broker_elsewhere_is_refused(
    fields: dict[str, Any],
) -> None:
    async with controller() as server, AsyncExitStack() as stack:
        one, _, _ = await trio(stack)
        await one.beat(lease_epoch=1)
        state = server.controller.leadership.leader_state()
        lease = state.lease("bc")
        copied = await stack.enter_async_context(broker(1))
        with pytest.raises(CallRefused, match="it has to register again") as it:
            await copied.beat(epoch=9, **fields)
        assert it.value.code == 2010
        assert state.lease("bc") == lease
        assert server.controller.liveness.candidates(stored(server))[1].epoch == -1


@in_virtual_time
async def test_a_broker_whose_cluster_is_not_said_is_of_the_group() -> None:
    async with controller(), AsyncExitStack() as stack:
        one, _, _ = await trio(stack)
        one.cluster = ""
        assert (await one.beat(lease_epoch=1)).lease_millis == LEASE_MS
