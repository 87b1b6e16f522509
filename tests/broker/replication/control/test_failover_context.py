"""Heartbeats to the controllers, and leases that they extend."""

import asyncio
import logging
from pathlib import Path
from random import Random
from typing import cast

import msgspec
import pytest
from tests.broker.conftest import background
from tests.broker.replication.control.test_failover import SETTINGS, Roles
from tests.broker.replication.scripted_controller import MEMBER, ScriptedController, client_of

from roquet.broker.replication.confirmation.set_acknowledgements import LogsInForce, MasterTermCell
from roquet.broker.replication.control.failover_context import (
    FailoverContext,
    FailoverSettings,
    GroupStanding,
    LeaseHeartbeats,
)
from roquet.broker.replication.control.transitions import LogFacts, RoleTransitions
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.model.errors import CallRefused
from roquet.rules.election.lease import LeaseTerms, MasterTerm
from roquet.rules.replication.role_change import GroupView, ObeyedTerm
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.replication.identity_file import IdentityFile
from roquet.testing.clock import this_loop
from roquet.wire.calls.route import BrokerHeartbeat, BrokerHeartbeatReply
from roquet.wire.codes import ResponseCode

pytestmark = pytest.mark.virtual_time

PARTLY = BrokerConfig(
    controller_mode=True, controllers=("a:1",), all_ack_in_sync_set=False, in_sync_replicas=3
)
"""Settings with which three logs have to hold a message."""


def test_a_broker_that_has_just_been_started_leads_nothing() -> None:
    standing = GroupStanding(4)
    assert standing.own == ObeyedTerm(broker_id=0, epoch=4)
    assert standing.leading is None
    assert standing.view is None


def test_a_master_leads_in_its_epoch() -> None:
    standing = GroupStanding(4)
    standing.own = ObeyedTerm(broker_id=2, epoch=5, master=2)
    assert standing.leading == (2, 5)
    standing.own = ObeyedTerm(broker_id=2, epoch=6, master=1)
    assert standing.leading is None


class Scene:
    """Broker 1, which leads in epoch 5 unless a test says otherwise."""

    def __init__(self, settings: FailoverSettings = SETTINGS) -> None:
        clock = this_loop().clock
        self.controller = ScriptedController()
        self.controller.grants(2_000)
        self.roles = Roles()
        self.doubts = 0
        self.standing = GroupStanding(4)
        self.standing.own = ObeyedTerm(broker_id=1, epoch=5, master=1)
        self.term = MasterTermCell(clock)
        self.broker = RuntimeSettings(PARTLY if settings.logs_needed else BrokerConfig())
        self.logs = LogsInForce(self.broker)
        self.broker.subscribe(self.logs.configure)
        context = FailoverContext(
            member=MEMBER,
            client=client_of(self.controller),
            identity=IdentityFile(Path("/data/brokerIdentity"), MemoryFiles()),
            transitions=cast(RoleTransitions, self.roles),
            term=self.term,
            logs=self.logs,
            settings_in_force=lambda: settings,
            clock=clock,
            rng=Random(1),
        )
        self.heartbeats = LeaseHeartbeats(context, self.standing, self._doubt)

    def _doubt(self) -> None:
        self.doubts += 1

    async def beat(self) -> None:
        """Send one heartbeat, to a controller that is there."""
        async with self.controller.server:
            await self.heartbeats.step()


async def test_a_lease_counts_from_before_the_heartbeat_was_sent() -> None:
    scene = Scene()
    this_loop().network.delay(100, 100)
    await scene.beat()
    assert scene.term.current == MasterTerm(epoch=5, until_ms=2_000)
    assert scene.roles.fenced is False


async def test_a_lower_number_of_logs_is_in_force_with_the_lease_that_it_was_said_for() -> None:
    scene = Scene(msgspec.structs.replace(SETTINGS, waits_for_all=False, logs_needed=2))
    scene.broker.change({"inSyncReplicas": "2"}, 0)
    assert scene.logs.current == 3
    await scene.beat()
    assert scene.logs.current == 2


async def test_a_late_answer_lowers_no_number_of_logs() -> None:
    scene = Scene(msgspec.structs.replace(SETTINGS, waits_for_all=False, logs_needed=2))
    scene.broker.change({"inSyncReplicas": "2"}, 0)
    scene.term.extend(MasterTerm(epoch=5, until_ms=60_000))
    await scene.beat()
    assert scene.logs.current == 3


async def test_a_lease_that_is_over_when_it_comes_unfences_nobody() -> None:
    scene = Scene()
    scene.controller.grants(100)
    this_loop().network.delay(60, 60)
    await scene.beat()
    assert scene.roles.fenced is None


async def test_a_lease_of_an_epoch_that_is_over_extends_nothing() -> None:
    scene = Scene()

    def grant(_call: BrokerHeartbeat) -> BrokerHeartbeatReply:
        scene.standing.own = ObeyedTerm(broker_id=1, epoch=6, master=2)
        return BrokerHeartbeatReply(lease_millis=2_000)

    scene.controller.replies[BrokerHeartbeat] = grant
    await scene.beat()
    assert scene.term.current is None
    assert scene.roles.fenced is None


async def test_a_master_sends_four_heartbeats_in_a_lease_however_slow_the_answers_are() -> None:
    scene = Scene()
    this_loop().network.delay(450, 450)
    async with scene.controller.server, background(scene.heartbeats.serve()):
        await asyncio.sleep(6)
        assert scene.controller.count(BrokerHeartbeat) == 9
        assert scene.term.may_acknowledge(5)


async def test_a_master_tells_the_set_that_it_knows_and_a_replica_none() -> None:
    scene = Scene()
    known = LogFacts(epoch=5, end=100, confirmed=90, members=frozenset({3, 1}), set_version=7)
    scene.roles.facts = lambda: known  # type: ignore[method-assign]
    async with scene.controller.server:
        await scene.heartbeats.step()
        scene.standing.own = ObeyedTerm(broker_id=1, epoch=6, master=2)
        await scene.heartbeats.step()
    told = [call for call in scene.controller.asked if isinstance(call, BrokerHeartbeat)]
    assert [(one.sync_state_set, one.sync_state_set_epoch) for one in told] == [
        ("1,3", 7),
        (None, None),
    ]


async def test_a_replica_sends_a_heartbeat_every_second() -> None:
    scene = Scene()
    scene.standing.own = ObeyedTerm(broker_id=1, epoch=5, master=2)
    async with scene.controller.server, background(scene.heartbeats.serve()):
        await asyncio.sleep(3.5)
        assert scene.controller.count(BrokerHeartbeat) == 4


async def test_a_new_master_extends_a_lease_that_is_shorter_than_the_pause_of_a_replica() -> None:
    scene = Scene(msgspec.structs.replace(SETTINGS, lease=LeaseTerms(length_ms=600)))
    scene.controller.grants(600)
    scene.standing.own = ObeyedTerm(broker_id=1, epoch=5, master=2)
    async with scene.controller.server, background(scene.heartbeats.serve()):
        await asyncio.sleep(0.1)
        scene.standing.own = ObeyedTerm(broker_id=1, epoch=5, master=1)
        await scene.heartbeats.step()  # as after an election
        for _ in range(20):
            await asyncio.sleep(0.1)
            assert scene.term.may_acknowledge(5)


async def test_a_refusal_is_a_reason_to_ask_who_leads_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.controller.refusals[BrokerHeartbeat] = CallRefused(
        ResponseCode.CONTROLLER_INVALID_MASTER, "the current master is 2"
    )
    async with scene.controller.server:
        with caplog.at_level(logging.WARNING):
            await scene.heartbeats.step()
            await scene.heartbeats.step()
    assert scene.doubts == 2
    assert caplog.text.count("the current master is 2") == 1


@pytest.mark.parametrize("own", [ObeyedTerm(broker_id=1, epoch=5, master=2), None])
async def test_a_late_refusal_of_an_earlier_heartbeat_takes_no_resignation_back(
    own: ObeyedTerm | None,
) -> None:
    scene = Scene()

    def refuse(_call: BrokerHeartbeat) -> BrokerHeartbeatReply:
        scene.standing.own = ObeyedTerm(broker_id=1, epoch=6, master=1)
        scene.standing.refused = 6
        raise CallRefused(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, "epoch 6 is led")

    if own is not None:  # a heartbeat of a replica
        scene.standing.own = own
    scene.controller.replies[BrokerHeartbeat] = refuse
    await scene.beat()
    assert scene.standing.refused == 6
    assert scene.doubts == 1


async def test_apaches_controller_extends_the_term_by_saying_who_leads() -> None:
    scene = Scene()
    scene.controller.grants(None)
    scene.controller.leads(1, 5)
    async with scene.controller.server:
        await scene.heartbeats.step()
        assert scene.term.current == MasterTerm(epoch=5, until_ms=9_311)
        scene.controller.leads(1, 6)
        await scene.heartbeats.step()
    assert scene.doubts == 1
    assert scene.term.current == MasterTerm(epoch=5, until_ms=9_311)


async def test_the_end_of_a_lease_fences_and_the_next_lease_does_so_again() -> None:
    scene = Scene()
    async with background(scene.heartbeats.watch()):
        clock = this_loop().clock
        await clock.sleep(10)
        assert scene.roles.fenced is True  # no lease was granted yet
        for _ in range(2):
            scene.term.extend(MasterTerm(epoch=5, until_ms=clock.monotonic_ms() + 1_000))
            scene.roles.fenced = False
            await clock.sleep(990)
            assert scene.roles.fenced is False
            await clock.sleep(20)
            assert scene.roles.fenced is True


async def test_nobody_is_fenced_who_does_not_lead() -> None:
    scene = Scene()
    scene.standing.own = ObeyedTerm(broker_id=1, epoch=5, master=2)
    async with background(scene.heartbeats.watch()):
        await asyncio.sleep(1)
        assert scene.roles.fenced is None


def test_heartbeats_are_sent_by_those_alone_who_may_be_elected() -> None:
    standing = GroupStanding(4)
    standing.own = ObeyedTerm(broker_id=1, epoch=4)
    assert standing.may_be_elected(is_log_whole=True)
    assert not standing.may_be_elected(is_log_whole=False)
    standing.view = GroupView(epoch=4, members=frozenset({1, 2}))
    assert not standing.may_be_elected(is_log_whole=False)
    standing.view = GroupView(epoch=4, members=frozenset({1}))
    assert standing.may_be_elected(is_log_whole=False)
    standing.view = GroupView(epoch=5, members=frozenset({1}))  # an election found nobody
    assert standing.may_be_elected(is_log_whole=False)
    standing.view = GroupView(epoch=6, master=1, members=frozenset({1}))  # by its own request
    assert standing.may_be_elected(is_log_whole=False)
    standing.resigned = 4
    assert not standing.may_be_elected(is_log_whole=True)


def test_a_broker_that_was_elected_in_absence_may_not_lead_without_a_whole_log() -> None:
    standing = GroupStanding(4)
    standing.own = ObeyedTerm(broker_id=1, epoch=4)
    for view in (
        GroupView(epoch=5, master=1, members=frozenset({1})),
        GroupView(epoch=6, members=frozenset({1})),  # it was missed then
    ):
        standing.view = view
        assert not standing.may_be_elected(is_log_whole=False)
        assert standing.may_be_elected(is_log_whole=True)


def standing_without_a_whole_log(epoch: int) -> GroupStanding:
    standing = GroupStanding(epoch)
    standing.own = ObeyedTerm(broker_id=1, epoch=epoch)
    return standing


@pytest.mark.parametrize("log_epoch", [4, -1])
def test_a_controller_that_lost_its_state_lets_nobody_lead_without_a_whole_log(
    log_epoch: int,
) -> None:
    standing = standing_without_a_whole_log(log_epoch)
    standing.view = GroupView(epoch=0)
    is_older = log_epoch > 0
    assert standing.may_be_elected(is_log_whole=False) is not is_older
    standing.view = GroupView(epoch=6, members=frozenset({1}), set_version=18)  # restored
    assert not standing.may_be_elected(is_log_whole=False)
    standing.view = GroupView(epoch=7, master=1, members=frozenset({1}), set_version=19)
    assert not standing.may_be_elected(is_log_whole=False)


def test_a_broker_that_was_alone_may_be_elected_after_its_controllers_state_was_restored() -> None:
    standing = standing_without_a_whole_log(4)
    for view in (
        GroupView(epoch=5, members=frozenset({1}), set_version=9),
        GroupView(epoch=0),
        GroupView(epoch=6, master=1, members=frozenset({1}), set_version=10),
    ):
        standing.view = view
        assert standing.may_be_elected(is_log_whole=False)
    standing.view = GroupView(epoch=7, master=2, members=frozenset({2}), set_version=11)
    assert not standing.may_be_elected(is_log_whole=False)


def test_a_new_group_elects_a_broker_without_a_whole_log() -> None:
    standing = standing_without_a_whole_log(-1)
    for view in (
        GroupView(epoch=0),
        GroupView(epoch=1, master=1, members=frozenset({1}), set_version=1),
    ):
        standing.view = view
        assert standing.may_be_elected(is_log_whole=False)


async def test_a_controller_that_is_away_is_a_line_a_reason_and_one_when_messages_are_taken_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Reasons take turns: the leader does not answer, then none of the controllers does."""
    scene = Scene()
    await scene.beat()
    async with background(scene.heartbeats.watch()):
        for _ in range(10):
            await scene.heartbeats.step()
            await asyncio.sleep(1)
        assert 1 <= caplog.text.count("heartbeat to the controller") <= 2
        assert caplog.text.count("the lease of epoch 5 is over: no messages are taken") == 1
        assert "messages are taken" not in caplog.text.replace("no messages are taken", "")
        again = ScriptedController()
        again.grants(2_000)
        async with again.server:
            for _ in range(5):
                await scene.heartbeats.step()
                await asyncio.sleep(1)
        assert caplog.text.count("epoch 5 has a lease again: messages are taken") == 1
