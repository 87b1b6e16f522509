"""A broker keeps the role that its controller gives it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import cast

import pytest
from tests.broker.conftest import background
from tests.broker.replication.scripted_controller import MEMBER, ScriptedController, client_of

from roquet.broker.replication.confirmation.set_acknowledgements import LogsInForce, MasterTermCell
from roquet.broker.replication.control.failover import Failover
from roquet.broker.replication.control.failover_context import FailoverContext, FailoverSettings
from roquet.broker.replication.control.transitions import LogFacts, RoleTransitions
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.model.errors import CallRefused, StoreError
from roquet.rules.election.lease import MasterTerm
from roquet.rules.replication.role_change import AdoptSet, FollowMaster, LeadGroup, ObeyedTerm
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.replication.identity_file import BrokerIdentity, IdentityFile
from roquet.testing.clock import this_loop
from roquet.wire.calls import controller as calls
from roquet.wire.calls.route import BrokerHeartbeat
from roquet.wire.codes import ResponseCode

pytestmark = pytest.mark.virtual_time

SETTINGS = FailoverSettings(
    poll_ms=5_000, heartbeat_ms=1_000, heartbeat_timeout_ms=10_000, priority=7, waits_for_all=True
)


class Roles:
    """Changes of role, as they were asked for."""

    def __init__(self) -> None:
        self.steps: list[object] = []
        self.fenced: bool | None = None
        self.may_be_elected = True
        self.failure: Exception | None = None
        self.disk_failure: StoreError | None = None
        self.can_be_replaced = False
        self.noted_failures = 0

    async def lead(self, broker_id: int, step: LeadGroup) -> None:
        if self.failure is not None:
            raise self.failure
        self.steps.append(step)
        self.fenced = True

    async def follow(self, broker_id: int, step: FollowMaster) -> None:
        self.steps.append(step)

    def adopt(self, step: AdoptSet) -> None:
        self.steps.append(step)

    async def stop_leading(self, broker_id: int, epoch: int) -> None:
        self.steps.append("stopped")

    def fence(self, *, is_fenced: bool) -> None:
        self.fenced = is_fenced

    def note_failure(self) -> None:
        self.noted_failures += 1

    def facts(self) -> LogFacts:
        return LogFacts(epoch=4, end=100, confirmed=90)


class Scene:
    """Broker 1, whose log ends in epoch 4, and a controller."""

    def __init__(self, settings: FailoverSettings = SETTINGS) -> None:
        self.clock = this_loop().clock
        self.controller = ScriptedController()
        self.controller.grants(2_000)
        self.roles = Roles()
        self.term = MasterTermCell(self.clock)
        identity = IdentityFile(Path("/data/brokerIdentity"), MemoryFiles())
        identity.save(BrokerIdentity(cluster="c", broker_name="g", broker_id=1))
        context = FailoverContext(
            member=MEMBER,
            client=client_of(self.controller),
            identity=identity,
            transitions=cast(RoleTransitions, self.roles),
            term=self.term,
            logs=LogsInForce(RuntimeSettings(BrokerConfig())),
            settings_in_force=lambda: settings,
            clock=self.clock,
            rng=Random(1),
        )
        self.failover = Failover(context, 4)

    @property
    def last_heartbeat(self) -> BrokerHeartbeat:
        beat: BrokerHeartbeat = self.controller.of(BrokerHeartbeat)[-1]
        return beat


@asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[Scene]:
    async with scene.controller.server, background(scene.failover.serve()):
        yield scene


@asynccontextmanager
async def led(by: int | None, epoch: int, *members: int) -> AsyncIterator[Scene]:
    """A broker that serves from the moment on at which the controller says who leads."""
    scene = Scene()
    scene.controller.leads(by, epoch, *members)
    async with running(scene):
        yield scene


async def test_an_elected_broker_leads_and_takes_messages_once_it_has_a_lease() -> None:
    async with led(1, 5) as scene:
        await asyncio.sleep(0.1)
        assert scene.roles.steps == [LeadGroup(epoch=5, members=frozenset({1}), set_version=1)]
        assert scene.roles.fenced is False
        assert scene.term.may_acknowledge(5)
        assert scene.failover.standing.leading == (1, 5)
        beat = scene.last_heartbeat
        assert (beat.lease_epoch, beat.waits_for_all, beat.releases_lease) == (5, True, None)
        assert (beat.broker_id, beat.epoch, beat.max_offset, beat.confirm_offset) == (1, 4, 100, 90)
        assert (beat.election_priority, beat.heartbeat_timeout_mills) == (7, 10_000)


async def test_a_broker_follows_another_and_tells_that_it_lives() -> None:
    async with led(2, 5) as scene:
        await asyncio.sleep(3.5)
        assert scene.roles.steps == [FollowMaster(epoch=5, master=2, address="10.0.0.2:10911")]
        assert scene.failover.standing.leading is None
        assert scene.controller.count(BrokerHeartbeat) == 4
        assert scene.last_heartbeat.lease_epoch is None
        (registered,) = scene.controller.of(calls.RegisterWithController)
        assert registered.broker_address == MEMBER.address


async def test_a_notice_is_answered_by_a_question() -> None:
    async with led(2, 5) as scene:
        await asyncio.sleep(1)
        scene.controller.leads(1, 6)
        scene.failover.notice()
        await asyncio.sleep(0.1)
        assert scene.failover.standing.leading == (1, 6)
        scene.controller.leads(1, 6, 1, 2, version=9)
        await asyncio.sleep(5)
        assert scene.roles.steps[-1] == AdoptSet(members=frozenset({1, 2}), set_version=9)


async def test_a_master_takes_no_messages_once_its_lease_is_over_and_again_with_a_new_one() -> None:
    async with led(1, 5) as scene:
        await asyncio.sleep(1)
        granted = scene.term.current
        assert granted is not None
        this_loop().network.partition("127.0.0.1", "127.0.0.1")
        await scene.clock.sleep(granted.until_ms - scene.clock.monotonic_ms() - 5)
        assert scene.roles.fenced is False
        await scene.clock.sleep(10)
        assert scene.roles.fenced is True
        assert not scene.term.may_acknowledge(5)
        await asyncio.sleep(20)
        this_loop().network.heal()
        await asyncio.sleep(5)
        assert scene.roles.fenced is False
        assert len(scene.roles.steps) == 1


async def test_under_a_controller_without_leases_its_answer_who_leads_takes_their_place() -> None:
    async with led(1, 5) as scene:
        scene.controller.grants(None)
        await asyncio.sleep(0.1)
        assert scene.roles.fenced is False
        assert scene.term.current == MasterTerm(epoch=5, until_ms=9_311)
        this_loop().network.partition("127.0.0.1", "127.0.0.1")
        await asyncio.sleep(9)
        assert scene.roles.fenced is False
        await asyncio.sleep(0.5)
        assert scene.roles.fenced is True
        this_loop().network.heal()


async def test_a_controller_that_names_another_master_extends_nothing() -> None:
    async with led(1, 5) as scene:
        scene.controller.grants(None)
        await asyncio.sleep(0.1)
        scene.controller.leads(2, 6)
        await asyncio.sleep(1)
        assert scene.roles.steps[-1] == FollowMaster(epoch=6, master=2, address="10.0.0.2:10911")
        assert scene.term.current is None


async def test_a_controller_without_leases_that_names_another_process_extends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with led(1, 5) as scene:
        scene.controller.grants(None)
        await asyncio.sleep(0.1)
        scene.controller.leads(1, 5, address="10.0.0.9:10911")
        await asyncio.sleep(1)
        assert scene.roles.steps[-1] == "stopped"
        assert scene.term.current is None
        scene.controller.leads(1, 6, address="10.0.0.9:10911")
        await asyncio.sleep(5)
        assert scene.failover.standing.leading is None
        assert scene.roles.steps.count("stopped") == 1
        scene.controller.leads(2, 7)
        await asyncio.sleep(1)
        assert isinstance(scene.roles.steps[-1], FollowMaster)
    text = "broker 1 leads at 10.0.0.9:10911, and this process at 10.0.0.1:10911 has a copy"
    assert caplog.text.count(text) == 1


async def test_a_broker_that_the_controller_takes_for_another_process_registers_again() -> None:
    async with led(2, 5) as scene:
        await asyncio.sleep(1)
        scene.controller.refusals[BrokerHeartbeat] = CallRefused(
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "it is elsewhere"
        )
        scene.controller.refusals[calls.RegisterWithController] = CallRefused(
            ResponseCode.CONTROLLER_BROKER_ID_INVALID, "broker 1 is alive at 10.0.0.9:10911"
        )
        await asyncio.sleep(5)
        assert scene.roles.steps[-1] == "stopped", "it follows nobody in the name of another"
        scene.controller.refusals.clear()
        await asyncio.sleep(2)
        assert isinstance(scene.roles.steps[-1], FollowMaster)


async def test_a_refused_lease_is_a_reason_to_ask_who_leads() -> None:
    async with led(1, 5) as scene:
        await asyncio.sleep(0.1)
        scene.controller.leads(2, 6)
        scene.controller.refusals[BrokerHeartbeat] = CallRefused(
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, "the current master epoch is 6"
        )
        await asyncio.sleep(1)
        assert isinstance(scene.roles.steps[-1], FollowMaster)


async def test_a_master_whose_lease_is_refused_in_its_own_epoch_has_itself_elected_again() -> None:
    scene = Scene()
    scene.controller.leads(1, 5)
    refusal = CallRefused(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, "it was started again")
    scene.controller.refusals[BrokerHeartbeat] = refusal

    def elect(_call: calls.ElectMaster) -> calls.ElectMasterReply:
        scene.controller.refusals.clear()
        scene.controller.leads(1, 6)
        return calls.ElectMasterReply()

    scene.controller.replies[calls.ElectMaster] = elect
    async with running(scene):
        await asyncio.sleep(3)
        assert "stopped" in scene.roles.steps
        assert scene.failover.standing.leading == (1, 6)
        assert scene.roles.fenced is False


async def test_without_a_master_an_election_is_asked_for_every_second() -> None:
    async with led(None, 5, 1, 2) as scene:
        scene.controller.refusals[calls.ElectMaster] = CallRefused(2012, "not now")
        await asyncio.sleep(3.5)
        assert scene.controller.count(calls.ElectMaster) == 4
        assert scene.roles.steps[0] == "stopped"
        assert any(beat.releases_lease for beat in scene.controller.of(BrokerHeartbeat))
        del scene.controller.refusals[calls.ElectMaster]
        scene.controller.leads(1, 6)
        await asyncio.sleep(1)
        assert scene.failover.standing.leading == (1, 6)


async def test_a_broker_whose_heartbeats_are_refused_too_asks_with_pauses() -> None:
    async with led(None, 5, 1, 2) as scene:
        for call in (calls.ElectMaster, BrokerHeartbeat):
            scene.controller.refusals[call] = CallRefused(2005, "another connection sends them")
        await asyncio.sleep(1)
        assert 1 < scene.controller.count(calls.ElectMaster) <= 21


async def test_a_learner_asks_for_no_election() -> None:
    settings = FailoverSettings(
        poll_ms=5_000, heartbeat_ms=1_000, heartbeat_timeout_ms=10_000, priority=1,
        waits_for_all=True, is_learner=True,
    )  # fmt: skip
    scene = Scene(settings)
    scene.controller.leads(None, 5)
    async with running(scene):
        await asyncio.sleep(5)
        assert scene.controller.count(calls.ElectMaster) == 0
        assert scene.controller.count(BrokerHeartbeat) >= 5


async def test_a_broker_whose_log_may_lack_something_is_no_candidate() -> None:
    async with led(None, 5, 1, 2) as scene:
        scene.roles.may_be_elected = False
        await asyncio.sleep(5)
        assert scene.controller.count(calls.ElectMaster) == 0
        assert scene.controller.count(BrokerHeartbeat) == 0
        scene.roles.may_be_elected = True
        await asyncio.sleep(2)
        assert scene.controller.count(calls.ElectMaster) >= 1


async def test_a_broker_that_was_alone_leads_on_though_its_log_may_lack_something() -> None:
    async with led(None, 5, 1) as scene:
        scene.roles.may_be_elected = False
        await asyncio.sleep(1.5)
        assert scene.controller.count(calls.ElectMaster) >= 1


async def test_a_broker_that_was_elected_while_its_machine_was_lost_does_not_lead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with led(1, 5, 1) as scene:
        scene.roles.may_be_elected = False
        await asyncio.sleep(5)
        assert scene.roles.steps == []
        assert scene.controller.count(BrokerHeartbeat) == 0
        assert caplog.text.count("was elected in epoch 5, and its log may lack messages") == 1
        scene.controller.leads(2, 6, 2)
        await asyncio.sleep(2)
        assert [type(step) for step in scene.roles.steps] == [FollowMaster]


async def test_a_broker_that_must_not_lead_waits_while_the_controllers_state_is_lost() -> None:
    scene = Scene()
    scene.roles.may_be_elected = False
    scene.controller.leads(None, 0, version=0)
    async with running(scene):
        await asyncio.sleep(3)
        scene.controller.leads(None, 9, 1, version=18)
        await asyncio.sleep(3)
        assert scene.controller.count(calls.ElectMaster) == 0
        assert scene.controller.count(BrokerHeartbeat) == 0


async def test_a_master_whose_disk_has_failed_leads_until_another_can_be_elected() -> None:
    async with led(1, 5) as scene:
        await asyncio.sleep(1)
        scene.roles.disk_failure = StoreError("EIO")
        await asyncio.sleep(5)
        assert scene.term.may_acknowledge(5)
        assert scene.roles.noted_failures == 1
        scene.roles.can_be_replaced = True
        await asyncio.sleep(1)
        beats = scene.controller.count(BrokerHeartbeat)
        assert scene.last_heartbeat.releases_lease
        assert not scene.failover.standing.own.leads
        await asyncio.sleep(5)
        assert scene.controller.count(BrokerHeartbeat) == beats
        assert scene.controller.count(calls.ElectMaster) == 0
        scene.controller.leads(2, 6)
        await asyncio.sleep(1)
        assert type(scene.roles.steps[-1]) is FollowMaster


async def test_a_replica_whose_disk_has_failed_is_lost_to_the_controller_at_once() -> None:
    async with led(2, 5) as scene:
        await asyncio.sleep(2)
        peer = scene.controller.peers[-1]
        scene.roles.disk_failure = StoreError("EIO")
        beats = scene.controller.count(BrokerHeartbeat)
        await asyncio.sleep(1)
        assert peer.closed
        await asyncio.sleep(5)
        assert scene.controller.count(BrokerHeartbeat) == beats
        assert scene.roles.noted_failures == 1


async def test_a_broker_whose_disk_has_failed_does_not_lead_when_it_is_elected_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with led(None, 5, 1) as scene:
        scene.roles.disk_failure = StoreError("EIO")
        await asyncio.sleep(3)
        assert scene.controller.count(calls.ElectMaster) == 0
        scene.controller.leads(1, 6, 1)
        await asyncio.sleep(3)
        assert LeadGroup not in [type(step) for step in scene.roles.steps]
        assert caplog.text.count("was elected in epoch 6, and its disk has failed (EIO)") == 1


def _still_leads(scene: Scene) -> None:
    scene.controller.replies[calls.ElectMaster] = lambda _: calls.ElectMasterReply(
        code=ResponseCode.CONTROLLER_MASTER_STILL_EXIST, master_broker_id=1
    )


async def test_a_restarted_master_hangs_up_and_is_silent_until_there_is_a_later_epoch() -> None:
    async with led(1, 4) as scene:
        _still_leads(scene)
        await asyncio.sleep(0.1)
        assert set(scene.roles.steps) == {"stopped"}
        assert scene.failover.standing.leading is None
        beats = scene.controller.count(BrokerHeartbeat)
        peer = scene.controller.peers[0]
        assert peer.closed
        await asyncio.sleep(8)
        assert scene.controller.count(BrokerHeartbeat) == beats
        scene.controller.leads(1, 5)
        await asyncio.sleep(2)
        assert scene.failover.standing.leading == (1, 5)


async def test_a_broker_applies_again_where_the_controller_does_not_know_it_any_more() -> None:
    async with led(2, 5) as scene:
        await asyncio.sleep(1)
        scene.controller.refusals[calls.GetReplicaInfo] = CallRefused(
            ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
        )
        await asyncio.sleep(6)
        assert scene.controller.count(calls.RegisterWithController) >= 2


async def test_a_role_that_cannot_be_taken_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.controller.leads(1, 5)
    scene.roles.failure = StoreError("the disk is full")
    with caplog.at_level(logging.WARNING):
        async with running(scene):
            await asyncio.sleep(2.5)
            assert scene.roles.steps == []
            assert scene.failover.standing.leading is None
            scene.roles.failure = ValueError("a fault of our own")
            await asyncio.sleep(2)
            scene.roles.failure = None
            await asyncio.sleep(2)
            assert scene.failover.standing.leading == (1, 5)
    assert caplog.text.count("no news of its controller: the disk is full") == 1
    assert "the role could not be changed; it is tried again" in caplog.text


async def test_an_elected_broker_asks_again_soon_where_a_controller_did_not_lead_any_more() -> None:
    async with led(2, 5) as scene:
        await asyncio.sleep(1)
        refusal = CallRefused(ResponseCode.CONTROLLER_NOT_LEADER, "not in leader state")
        scene.controller.refusals[calls.GetReplicaInfo] = refusal
        scene.failover.notice()
        await asyncio.sleep(0.1)
        del scene.controller.refusals[calls.GetReplicaInfo]
        scene.controller.leads(1, 6)
        await asyncio.sleep(1.2)
        assert scene.failover.standing.leading == (1, 6)


async def test_nonsense_of_the_controller_ends_the_lead(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.controller.leads(1, 5)
    with caplog.at_level(logging.ERROR):
        async with running(scene):
            await asyncio.sleep(1)
            scene.controller.leads(2, 5)
            scene.failover.notice()
            await asyncio.sleep(0.1)
            assert scene.roles.steps[-1] == "stopped"
            assert scene.term.current is None
    assert "brokers 1 and 2 are both said to lead in epoch 5" in caplog.text


async def test_a_controller_that_is_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.controller.leads(2, 5)
    task = asyncio.create_task(scene.failover.serve())
    with caplog.at_level(logging.WARNING):
        await asyncio.sleep(30)
    assert scene.roles.steps == []
    assert caplog.text.count("no news of its controller") == 1
    async with scene.controller.server:
        await asyncio.sleep(5)
        assert isinstance(scene.roles.steps[0], FollowMaster)
        task.cancel()


async def test_each_time_without_a_controller_is_logged_and_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:

    scene = Scene()
    async with background(scene.failover.serve()):
        lines = []
        for _ in range(3):
            controller = ScriptedController()
            controller.leads(2, 5)
            async with controller.server:
                await asyncio.sleep(20)
            lines.append(caplog.text.count("g: its controller is heard again"))
            caplog.clear()
            await asyncio.sleep(20)
            lines.append(caplog.text.count("g: no news of its controller"))
            caplog.clear()
        assert lines == [0, 1, 1, 1, 1, 1]


async def test_a_master_that_stops_gives_up_its_lease() -> None:
    async with led(1, 5) as scene:
        await asyncio.sleep(0.1)
        await scene.failover.release()
        assert scene.roles.steps[-1] == "stopped"
        assert not scene.term.may_acknowledge(5)
        assert scene.last_heartbeat.releases_lease
        assert scene.failover.standing.own == ObeyedTerm(broker_id=1, epoch=5)
        await asyncio.sleep(0.1)
        assert scene.controller.peers[0].closed


async def test_a_replica_that_stops_has_nothing_to_give_up() -> None:
    async with led(2, 5) as scene:
        await asyncio.sleep(0.1)
        count = scene.controller.count(BrokerHeartbeat)
        await scene.failover.release()
        assert scene.controller.count(BrokerHeartbeat) == count


async def test_a_master_that_resigns_leads_again_in_another_epoch_only() -> None:
    scene = Scene()
    scene.controller.leads(1, 5)

    def elect(_call: calls.ElectMaster) -> calls.ElectMasterReply:
        scene.controller.leads(1, 6)
        return calls.ElectMasterReply()

    scene.controller.replies[calls.ElectMaster] = elect
    async with running(scene):
        await asyncio.sleep(1)
        scene.failover.resign(4)
        await asyncio.sleep(1)
        assert scene.failover.standing.leading == (1, 5), "that epoch is over already"
        scene.failover.resign(5)
        await asyncio.sleep(1)
        assert "stopped" in scene.roles.steps
        assert any(beat.releases_lease for beat in scene.controller.of(BrokerHeartbeat))
        assert scene.failover.standing.leading == (1, 6)
        assert scene.roles.fenced is False
