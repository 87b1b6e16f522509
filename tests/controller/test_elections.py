"""Elections that the controller runs by itself."""

import asyncio

import pytest
from tests.controller.conftest import (
    Broker,
    Trio,
    broker,
    controller,
    open_trio,
    sleep_ms,
    stored,
)
from tests.controller.test_liveness import beat
from tests.namesrv.conftest import FakePeer

from roquet.controller.app import ControllerServer
from roquet.controller.state_store.interface import StateStoreError
from roquet.controller.state_store.memory import MemoryStore
from roquet.rules.election.elect import ElectionRequest
from roquet.rules.election.group import ReplicaGroup

pytestmark = pytest.mark.virtual_time


async def test_nobody_is_elected_from_outside_the_set_unless_it_is_allowed() -> None:
    for unclean, master in ((False, None), (True, 2)):
        async with controller(elect_unclean_master=unclean) as server, open_trio() as (one, _, _):
            await one.alter(1, 2, 1)
            await one.channel.close()
            await sleep_ms(100)
            group = stored(server)
            assert (group.master, group.master_epoch) == (master, 2)
            assert group.in_sync == ({2} if unclean else {1})


async def test_without_notices_brokers_have_to_ask() -> None:
    async with controller(notify_role_changes=False) as server, open_trio() as (one, two, _):
        await one.channel.close()
        await sleep_ms(100)
        assert stored(server).master in {2, 3}
        assert two.notices == []


async def test_a_lone_master_that_is_lost_stays_the_master(server: ControllerServer) -> None:
    async with broker(1) as one:
        await one.lead()
    await sleep_ms(10_000)
    assert (stored(server).master, stored(server).master_epoch) == (1, 1)


async def test_an_election_waits_for_members_that_may_have_more_and_says_so_once(
    server: ControllerServer, trio: Trio, caplog: pytest.LogCaptureFixture
) -> None:
    one, two, three = trio
    await three.beat(epoch=1, max_offset=4_000, logs_needed=2)
    await two.channel.close()
    await one.channel.close()
    await sleep_ms(5_000)
    assert stored(server).master == 1, "3 may lack what 1 and 2 have"
    async with broker(2, address=two.address) as again:
        await again.beat(epoch=1, max_offset=5_000, logs_needed=2)
        await sleep_ms(1_000)
        assert stored(server).master == 2
    assert caplog.text.count("1 more of its set [1, 2, 3] must be alive") == 1


class FailingStore(MemoryStore):
    is_away = False
    fault: Exception | None = None
    """Raised by the next write."""

    async def save(self, term: int, name: str, group: ReplicaGroup, revision: int) -> int:
        if self.is_away:
            raise StateStoreError("the disk is full", definite=True)
        if (fault := self.fault) is not None:
            self.fault = None
            raise fault
        return await super().save(term, name, group, revision)


async def test_an_election_that_could_not_be_stored_is_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FailingStore()
    async with controller(store) as server, open_trio() as (one, two, three):
        store.is_away = True
        await one.channel.close()
        await sleep_ms(1_000)
        assert stored(server).master == 1
        assert any("no election in group bc" in line for line in caplog.messages)
        store.is_away = False
        for _ in range(10):
            await two.beat(max_offset=5)
            await three.beat()
            await sleep_ms(1_000)
        assert stored(server).master == 2


async def test_a_fault_in_one_election_stops_neither_the_others_nor_later_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FailingStore()
    async with (
        controller(store) as server,
        open_trio() as (one, two, _),
        broker(1, name="bd") as other_one,
        broker(2, name="bd") as other_two,
    ):
        other = (other_one, other_two)
        for each in other:
            await each.join()
        await other[0].elect()
        await other[0].alter(1, 1, 1, 2)
        store.fault = KeyError("a fault of ours")
        await one.channel.close()
        await other[0].channel.close()
        await sleep_ms(100)
        assert any("the election in group bc failed" in line for line in caplog.messages)
        assert stored(server, "bd").master == 2
        await two.beat()
        await sleep_ms(server.config.scan_ms)
        assert stored(server).master_epoch == 2


async def test_a_scan_that_fails_is_followed_by_another(
    server: ControllerServer,
    trio: Trio,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, _, _ = trio
    liveness = server.controller.liveness

    def fails(_now_ms: int) -> None:
        monkeypatch.undo()
        raise KeyError("a fault of ours")

    monkeypatch.setattr(liveness, "expire", fails)
    await one.channel.close()
    await sleep_ms(2_000)
    assert any("a scan for lost masters failed" in line for line in caplog.messages)
    assert stored(server).master_epoch == 2


async def test_names_of_brokers_that_are_gone_are_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with controller():
        for _ in range(2):
            async with broker(1) as one:
                await one.beat(epoch=3)
                await sleep_ms(100)
            await sleep_ms(100)
    assert len([line for line in caplog.messages if "nobody is elected" in line]) == 2


async def test_the_brokers_own_wish_is_no_restart(server: ControllerServer, trio: Trio) -> None:
    elections = server.controller.elections
    state = server.controller.leadership.leader_state()
    result = await elections.elect(state, "bc", ElectionRequest(asker=1, restarted=True))
    assert result.refusal is not None
    assert result.group.master == 1


async def test_an_epoch_that_is_later_than_the_state_is_logged_once_for_each_epoch(
    server: ControllerServer, one: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    for epoch in (3, 3, 4, 3):
        await one.beat(epoch=epoch)
        await sleep_ms(6_000)
    lines = [line for line in caplog.messages if "nobody is elected" in line]
    assert [line.split(",")[0] for line in lines] == [
        f"group bc is in epoch 3 (so says {one.address})",
        f"group bc is in epoch 4 (so says {one.address})",
    ]


async def test_others_have_their_turn_while_thousands_of_names_are_looked_at(
    server: ControllerServer, one: Broker
) -> None:
    await one.apply()
    liveness, peer = server.controller.liveness, FakePeer()
    for number in range(1_000):
        assert liveness.note(f"false-{number}", 1, beat(peer, limit_ms=60_000))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await server.controller.elections.scan()
    task.cancel()
    assert turns >= 10
    assert liveness.count >= 1_000
