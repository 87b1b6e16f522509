from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.controller.conftest import (
    LEASE_MS,
    Broker,
    Trio,
    broker,
    controller,
    open_trio,
    sleep_ms,
    stored,
)
from tests.namesrv.conftest import FakePeer
from tests.raising import raises

from roquet.controller import liveness
from roquet.controller.app import ControllerServer
from roquet.controller.handlers.heartbeat import known_set, live_broker
from roquet.controller.state_store.memory import MemoryStore
from roquet.model.errors import CallRefused
from roquet.wire.calls.route import BrokerHeartbeat

pytestmark = pytest.mark.virtual_time


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


async def test_a_heartbeat_without_an_id_or_with_a_wrong_one_is_refused(
    server: ControllerServer, one: Broker
) -> None:
    for broker_id in (None, 0, -3):
        with raises(CallRefused, code=2005):
            await one.channel.call(call(broker_id=broker_id))
    assert server.controller.liveness.count == 0


async def test_too_many_brokers_are_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "BROKERS_MAX", 0)
    async with controller(), broker(1) as one:
        with pytest.raises(CallRefused, match="too many brokers"):
            await one.beat()


async def test_a_master_of_an_unknown_group_gets_no_lease(
    server: ControllerServer, one: Broker
) -> None:
    with raises(CallRefused, code=2008):
        await one.beat(lease_epoch=1)


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


async def test_after_an_old_copy_was_restored_the_masters_own_set_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with controller() as server, broker(1) as one, broker(2) as two, broker(3) as three:
        for each in (one, two, three):
            await each.join()
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


async def test_a_broker_of_another_cluster_is_refused_and_says_nothing_about_the_group(
    server: ControllerServer, trio: Trio, stack: AsyncExitStack
) -> None:
    one, _, _ = trio
    stray = await stack.enter_async_context(broker(7))
    stray.cluster = "x"
    with raises(CallRefused, code=2010, match="of cluster C, not x"):
        await stray.beat(epoch=50)
    assert server.controller.elections.epoch_known("bc") == 0
    assert (await one.beat(lease_epoch=1)).lease_millis == LEASE_MS


async def test_a_broker_of_another_cluster_that_was_heard_before_does_not_count(
    server: ControllerServer, trio: Trio
) -> None:
    one, _, _ = trio
    stray = live_broker(call(cluster_name="x", broker_id=2, epoch=50), FakePeer(), 0)
    server.controller.liveness.note("bc", 2, stray)
    assert (await one.beat(lease_epoch=1)).lease_millis == LEASE_MS


@pytest.mark.parametrize("fields", [{"lease_epoch": 1}, {"releases_lease": True}, {}])
async def test_a_process_that_has_the_id_of_a_broker_elsewhere_is_refused(
    server: ControllerServer, trio: Trio, stack: AsyncExitStack, fields: dict[str, Any]
) -> None:
    one, _, _ = trio
    await one.beat(lease_epoch=1)
    state = server.controller.leadership.leader_state()
    lease = state.lease("bc")
    copied = await stack.enter_async_context(broker(1))
    with raises(CallRefused, code=2010, match="it has to register again"):
        await copied.beat(epoch=9, **fields)
    assert state.lease("bc") == lease
    assert server.controller.liveness.candidates(stored(server))[1].epoch == -1


async def test_a_broker_whose_cluster_is_not_said_is_of_the_group(trio: Trio) -> None:
    one, _, _ = trio
    one.cluster = ""
    assert (await one.beat(lease_epoch=1)).lease_millis == LEASE_MS


@pytest.mark.parametrize(
    "fields",
    [
        {"epoch": 2**30, "max_offset": 2**40},
        {"releases_lease": True},
        {"lease_epoch": 1, "sync_state_set": "1", "sync_state_set_epoch": 99},
    ],
)
@pytest.mark.parametrize("victim", [1, 2])
async def test_a_stranger_says_nothing_in_the_name_of_a_living_broker(
    server: ControllerServer,
    trio: Trio,
    stack: AsyncExitStack,
    victim: int,
    fields: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    brokers = one, _, _ = trio
    stranger = await stack.enter_async_context(broker(victim, address=brokers[victim - 1].address))
    for _ in range(20):
        with raises(CallRefused, code=2005, match="another connection sends heartbeats as"):
            await stranger.beat(**fields)
        await sleep_ms(500)
        for each in brokers[1:]:
            await each.beat()
        assert (await one.beat(lease_epoch=1)).lease_millis == LEASE_MS
    assert stored(server).in_sync == {1, 2, 3}
    assert caplog.text.count("sends heartbeats over two connections") == 1
    assert server.controller.liveness.live(stored(server))[victim].candidate.epoch == -1


async def test_who_is_elected_is_known_by_one_connection(
    server: ControllerServer, trio: Trio, stack: AsyncExitStack
) -> None:
    one, two, three = trio
    again = await stack.enter_async_context(broker(2, address=two.address))
    liveness, group = server.controller.liveness, stored(server)
    with pytest.raises(CallRefused):
        await again.beat(max_offset=5)
    assert liveness.candidates(group).keys() == {1, 3}
    for each in (again, await stack.enter_async_context(broker(1, address=one.address))):
        with raises(CallRefused, code=2012, match="heartbeats as broker"):
            await each.elect()
    await two.channel.close()
    await again.beat(max_offset=5)
    assert liveness.candidates(group)[2].end == 5
    await sleep_ms(4_000)
    await three.beat()
    once_more = await stack.enter_async_context(broker(2, address=two.address))
    await once_more.beat(max_offset=7)
    assert liveness.candidates(group)[2].end == 7, "the one before was silent for too long"
    with pytest.raises(CallRefused):
        await again.beat(max_offset=5)
    await once_more.beat(max_offset=7)
    assert 2 not in liveness.candidates(group)
    await sleep_ms(4_000)
    await once_more.beat(max_offset=7)
    assert 2 in liveness.candidates(group)


async def test_an_epoch_that_no_election_made_is_refused_once_the_state_is_known_to_be_the_latest(
    server: ControllerServer, trio: Trio, stack: AsyncExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    one, _, _ = trio
    stranger = await stack.enter_async_context(broker(4))
    await stranger.beat(epoch=2**30)
    assert server.controller.elections.is_outdated("bc"), "nobody elects meanwhile"
    assert (await one.beat(lease_epoch=1)).lease_millis == LEASE_MS
    assert not server.controller.elections.is_outdated("bc")
    for register in (False, True):
        if register:
            await stranger.apply()
        with raises(CallRefused, code=2005, match="to which nobody was elected in bc"):
            await stranger.beat(obeyed_epoch=2)
    assert "broker bc:4" in caplog.text
    await stranger.beat(obeyed_epoch=1)
    assert (await one.beat(lease_epoch=1)).lease_millis == LEASE_MS


async def test_a_member_that_obeys_a_later_epoch_shows_that_the_state_is_old() -> None:
    store = MemoryStore()
    async with AsyncExitStack() as stack:
        async with controller(store):
            one, two, _ = await stack.enter_async_context(open_trio())
            await one.beat(lease_epoch=1)
            address = one.address, two.address
        async with controller(store) as server:
            one = await stack.enter_async_context(broker(1, address=address[0]))
            two = await stack.enter_async_context(broker(2, address=address[1]))
            await one.beat(lease_epoch=1)
            await two.beat(obeyed_epoch=2)
            assert server.controller.elections.is_outdated("bc")
            with pytest.raises(CallRefused, match="older than its brokers"):
                await one.beat(lease_epoch=1)


async def test_applications_of_nobody_use_up_no_ids(
    server: ControllerServer, trio: Trio, stack: AsyncExitStack
) -> None:
    stranger = await stack.enter_async_context(broker(4, address="10.9.9.9:1"))
    for broker_id in range(4, 150):
        stranger.broker_id = broker_id
        await stranger.apply()
    assert len(stored(server).replicas) == 100
    last = await stack.enter_async_context(broker(stored(server).next_id))
    await last.apply()
    assert {1, 2, 3, last.broker_id} < stored(server).replicas.keys()
