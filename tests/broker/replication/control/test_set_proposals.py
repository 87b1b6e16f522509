"""Changes of the sync-state set, asked of the controller."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.broker.conftest import background

from roquet.broker.replication.confirmation.sync_set import SyncSet
from roquet.broker.replication.control.controller_client import ControllerClient, OwnBroker
from roquet.broker.replication.control.failover import Failover
from roquet.broker.replication.control.set_proposals import SetProposals
from roquet.model.errors import CallError, CallRefused, CallTimeout, ConnectFailed, StoreFailed
from roquet.net.pool import ChannelPool
from roquet.rules.replication.acknowledgement import ALL_OF_THE_SET
from roquet.rules.replication.sync_state import ReplicaReportFacts, SentFrame, SyncState
from roquet.testing.clock import this_loop
from roquet.wire.calls.controller import SyncStateSet
from roquet.wire.codes import ResponseCode

pytestmark = pytest.mark.virtual_time

MEMBER = OwnBroker(cluster="c", name="g", address="10.0.0.1:10911")

Answer = Callable[[frozenset[int], int], SyncStateSet]


def agreed(members: frozenset[int], version: int) -> SyncStateSet:
    return SyncStateSet(sync_state_set=sorted(members), sync_state_set_epoch=version + 1)


def failing(error: CallError) -> Answer:
    def answer(_members: frozenset[int], _version: int) -> SyncStateSet:
        raise error

    return answer


class Controller(ControllerClient):
    """Answers with what a test sets."""

    def __init__(self) -> None:
        clock = this_loop().clock
        super().__init__(MEMBER, tuple, ChannelPool(clock=clock), clock)
        self.answer: Answer = agreed
        self.asked: list[tuple[int, int, int, frozenset[int]]] = []

    async def alter_set(
        self, master: int, epoch: int, version: int, members: frozenset[int]
    ) -> SyncStateSet:
        self.asked.append((master, epoch, version, members))
        return self.answer(members, version)


class Scene:
    """A master of epoch 5 with a replica that has caught up."""

    def __init__(self, needed: int = ALL_OF_THE_SET) -> None:
        clock = this_loop().clock
        self.clock = clock
        self.end = 100
        self.term: tuple[int, int] | None = (1, 5)
        self.refused = 0
        self.resigned: list[int] = []
        self.resign = self.resigned.append
        self.flushed = 100
        self.set = SyncSet(
            clock,
            lambda: self.end,
            lambda: needed,
            lambda _: None,
            flushed=lambda: self.flushed,
            only_flushed=lambda _: False,
        )
        self.set.begin(1, SyncState(members=frozenset({1}), version=7), 100)
        self.controller = Controller()
        self.proposals = SetProposals(
            self.set,
            self.controller,
            clock,
            cast(Failover, self),
            lambda: 15_000,
            lambda: self.flush(),
        )
        self.flushes: list[int] = []
        """Requests that were made before each flush."""
        self.on_flush: Callable[[], object] = lambda: None
        self.flush: Callable[[], Awaitable[None]] = self.flush_at_once
        self.report(2, 100)

    def report(self, broker_id: int, position: int) -> None:
        facts = ReplicaReportFacts(broker_id=broker_id, report=position)
        self.set.reported(facts, SentFrame(self.end, self.clock.monotonic_ms()))

    async def flush_at_once(self) -> None:
        self.flushes.append(len(self.controller.asked))
        end = self.end
        self.on_flush()
        self.flushed = end

    def notice(self) -> None:
        self.refused += 1

    @property
    def standing(self) -> Any:
        return SimpleNamespace(leading=self.term)


async def test_a_replica_that_has_caught_up_joins() -> None:
    scene = Scene()
    assert await scene.proposals.step()
    assert scene.controller.asked == [(1, 5, 7, frozenset({1, 2}))]
    assert scene.set.state == SyncState(members=frozenset({1, 2}), version=8)
    assert await scene.proposals.step()
    assert len(scene.controller.asked) == 1


async def test_nothing_is_asked_without_a_term() -> None:
    scene = Scene()
    scene.term = None
    assert await scene.proposals.step()
    assert scene.controller.asked == []


REFUSED = CallRefused(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, "replica 2 is not alive")


@pytest.mark.parametrize("error", [REFUSED, ConnectFailed("nobody is there")])
async def test_a_refused_change_is_taken_back(
    error: CallError, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    scene.controller.answer = failing(error)
    with caplog.at_level(logging.WARNING):
        assert not await scene.proposals.step()
        assert not await scene.proposals.step()
    assert caplog.text.count("the controller has not made the set [1, 2]") == 1
    assert scene.set.state.proposed is None
    assert scene.set.is_alone
    assert scene.refused == 2


LATE = CallRefused(ResponseCode.CONTROLLER_NOT_LEADER)


@pytest.mark.parametrize("error", [CallTimeout("no answer"), LATE, CallRefused(1, "failed")])
async def test_a_change_that_may_have_been_made_keeps_both_sets_until_it_is_known(
    error: CallError,
) -> None:
    scene = Scene()
    scene.controller.answer = failing(error)
    assert not await scene.proposals.step()
    assert scene.set.state.acknowledging == {1, 2}
    # Refusals that follow say nothing of the first request, which may be on its way for long.
    scene.controller.answer = failing(REFUSED)
    assert not await scene.proposals.step()
    assert scene.set.state.acknowledging == {1, 2}
    await scene.clock.sleep(600_000)
    assert not await scene.proposals.step()
    assert scene.set.state.acknowledging == {1, 2}
    scene.set.adopt(frozenset({1}), 8)
    assert scene.set.is_alone


async def test_the_same_change_is_asked_for_until_it_is_answered() -> None:
    scene = Scene()
    scene.controller.answer = failing(CallTimeout("no answer"))
    await scene.proposals.step()
    scene.set.disconnected(2)
    scene.controller.answer = agreed
    await scene.proposals.step()
    assert [asked[3] for asked in scene.controller.asked] == [{1, 2}, {1, 2}]
    await scene.proposals.step()
    assert scene.controller.asked[-1] == (1, 5, 8, frozenset({1}))
    assert scene.set.is_alone


async def test_a_set_without_its_master_is_not_believed() -> None:
    scene = Scene()
    scene.controller.answer = lambda _members, version: agreed(frozenset({2}), version)
    assert not await scene.proposals.step()
    assert scene.set.state.acknowledging == {1, 2}


@pytest.mark.parametrize("answer", [agreed, failing(REFUSED)])
async def test_answers_of_an_earlier_term_change_nothing(answer: Answer) -> None:
    scene = Scene()

    def late(*arguments: Any) -> SyncStateSet:
        scene.term = (1, 6)
        scene.set.begin(1, SyncState(members=frozenset({1}), version=20), 100)
        return answer(*arguments)

    scene.controller.answer = late
    await scene.proposals.step()
    assert scene.set.state == SyncState(members=frozenset({1}), version=20)
    assert scene.refused == 0


async def test_a_change_is_asked_for_again_every_second_until_it_is_made() -> None:
    scene = Scene()
    scene.controller.answer = failing(REFUSED)
    async with background(scene.proposals.serve()):
        await scene.clock.sleep(3_500)
        assert len(scene.controller.asked) == 4
        scene.controller.answer = agreed
        await scene.clock.sleep(1_000)
        assert scene.set.state.members == {1, 2}
        scene.set.disconnected(2)
        await scene.clock.sleep(100)
        assert scene.set.state.members == {1}


async def test_members_that_say_nothing_any_more_are_found_by_a_look() -> None:
    scene = Scene()
    async with background(scene.proposals.serve()):
        await scene.clock.sleep(15_100)
        assert scene.set.state.members == {1, 2}
        scene.proposals.check()
        await scene.clock.sleep(100)
        assert scene.set.state.members == {1}


async def test_a_change_that_may_have_been_made_and_is_refused_is_settled_by_an_election(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.controller.answer = failing(CallTimeout("no answer"))
    await scene.proposals.step()
    for answer in (failing(REFUSED), failing(ConnectFailed("away")), failing(REFUSED)):
        scene.controller.answer = answer
        await scene.proposals.step()
        assert scene.resigned == [], "the new member may have been started again"
    assert "another one is asked for" not in caplog.text
    for _ in range(3):
        await scene.proposals.step()
    assert scene.resigned == [5, 5, 5], "again, in case the first resignation was taken back"
    assert caplog.text.count("another one is asked for") == 1
    assert scene.set.state.acknowledging == {1, 2}, "nothing is acknowledged without it until then"


async def test_refusals_are_counted_anew_after_a_request_without_an_answer() -> None:
    scene = Scene()
    for error in (CallTimeout("no answer"), REFUSED, REFUSED) * 2:
        scene.controller.answer = failing(error)
        await scene.proposals.step()
    assert scene.resigned == []
    await scene.proposals.step()
    assert scene.resigned == [5]


async def test_a_new_term_begins_without_doubt_of_the_last_one() -> None:
    scene = Scene()
    for error in (CallTimeout("no answer"), REFUSED, REFUSED):
        scene.controller.answer = failing(error)
        await scene.proposals.step()
    scene.term = None
    assert await scene.proposals.step()
    scene.term = (1, 6)
    scene.set.begin(1, SyncState(members=frozenset({1}), version=20), 100)
    scene.set.reported(ReplicaReportFacts(broker_id=2, report=100), SentFrame(100, 0))
    assert not await scene.proposals.step()
    assert scene.resigned == []
    assert scene.set.is_alone, "a refusal that nothing casts doubt on is taken as one"


async def test_the_log_is_on_the_disk_before_a_member_leaves() -> None:
    scene = Scene()
    await scene.proposals.step()
    assert scene.flushes == [], "a member that joins has all"
    scene.set.disconnected(2)
    await scene.proposals.step()
    assert scene.flushes == [1], "before the second request"
    assert scene.set.state.members == {1}


async def test_nobody_leaves_while_the_disk_fails() -> None:
    def fail() -> None:
        raise StoreFailed("the disk is gone")

    scene = Scene()
    await scene.proposals.step()
    scene.set.disconnected(2)
    scene.on_flush = fail
    assert not await scene.proposals.step()
    assert scene.set.state == SyncState(members=frozenset({1, 2}), version=8)


async def test_a_term_that_ends_while_the_log_is_flushed_proposes_nothing() -> None:
    def depose() -> None:
        scene.term = None

    scene = Scene()
    await scene.proposals.step()
    scene.set.disconnected(2)
    scene.on_flush = depose
    assert not await scene.proposals.step()
    assert len(scene.controller.asked) == 1


async def test_a_member_leaves_once_enough_of_those_who_stay_have_what_was_acknowledged() -> None:
    scene = Scene(needed=2)
    scene.report(3, 100)
    await scene.proposals.step()
    assert scene.set.state.members == {1, 2, 3}
    scene.end = 150
    scene.report(2, 150)
    assert scene.set.acknowledged == 150
    scene.set.disconnected(2)
    assert not await scene.proposals.step()
    assert scene.set.state.members == {1, 2, 3}, "3 might be elected alone, and lacks a message"
    scene.report(3, 150)
    assert await scene.proposals.step()
    assert scene.set.state.members == {1, 3}


@asynccontextmanager
async def slow_flush(scene: Scene) -> AsyncIterator[None]:
    """Member 2 has left, and the flush before the change takes as long as the block."""
    begun, done = asyncio.Event(), asyncio.Event()

    async def flush() -> None:
        end = scene.end
        begun.set()
        await done.wait()
        scene.flushed = end

    scene.set.disconnected(2)
    scene.flush = flush
    step = asyncio.create_task(scene.proposals.step())
    await begun.wait()
    yield
    done.set()
    assert not await step
    scene.flush = scene.flush_at_once


async def test_what_a_member_acknowledges_during_the_flush_is_flushed_before_it_leaves() -> None:
    scene = Scene()
    assert await scene.proposals.step()
    async with slow_flush(scene):
        scene.end = 200
        scene.report(2, 200)
        assert scene.set.acknowledged == 200
        scene.set.disconnected(2)
    assert scene.set.state.members == {1, 2}, "the disk has 100 bytes, and 2 has more"
    assert await scene.proposals.step()
    assert scene.set.state.members == {1}
    assert scene.flushed == 200


async def test_who_joins_while_another_leaves_has_what_is_acknowledged_during_the_flush() -> None:
    scene = Scene()
    assert await scene.proposals.step()
    scene.report(3, 100)
    async with slow_flush(scene):  # it was {1, 3} that there should be
        scene.end = 200
        scene.report(2, 200)
        assert scene.set.acknowledged == 200
    assert 3 not in scene.set.state.members
    assert await scene.proposals.step()
    assert scene.set.state.members == {1, 2}


async def test_a_change_that_may_have_been_made_is_asked_for_again_though_another_is_wanted() -> (
    None
):
    scene = Scene(needed=2)
    assert await scene.proposals.step()
    scene.report(3, 100)
    assert await scene.proposals.step()
    scene.set.disconnected(2)
    scene.controller.answer = failing(CallTimeout("no answer"))
    assert not await scene.proposals.step()
    scene.report(2, 100)  # it is back
    scene.controller.answer = agreed
    assert await scene.proposals.step()
    assert scene.set.state.members == {1, 3}
    assert await scene.proposals.step()
    assert scene.set.state.members == {1, 2, 3}


async def test_a_master_that_waits_for_no_replica_does_not_wait_for_its_disk_either() -> None:
    scene = Scene(needed=1)
    assert await scene.proposals.step()
    scene.set.disconnected(2)
    scene.on_flush = lambda: setattr(scene, "end", 200)
    scene.set.confirm()
    assert await scene.proposals.step()
    assert scene.set.state.members == {1}, "under load a dead member would never leave"
