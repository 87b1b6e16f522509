"""How a broker becomes master or replica, step by step."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.broker.conftest import background
from tests.broker.replication.controlled_parts import ControlledParts

from roquet.broker.replication.control.transitions import LogFacts, MasterLocator
from roquet.broker.replication.role import Role
from roquet.model.epoch import EpochEntry
from roquet.model.errors import StoreError
from roquet.net.pool import ChannelPool
from roquet.net.router import Peer, Router
from roquet.net.server import Server
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.rules.replication.role_change import AdoptSet, FollowMaster, LeadGroup
from roquet.rules.replication.sync_state import ReplicaReportFacts, SentFrame
from roquet.store.replication.epoch_file import EpochFile
from roquet.wire.calls.replication import ExchangeHaInfo, ExchangeHaInfoReply

pytestmark = pytest.mark.virtual_time

EPOCHS = Path("/data/epochFileCheckpoint")

ADDRESS = "127.0.0.1:10911"

FOLLOWER = Role(role=BrokerRole.SLAVE, broker_id=2, epoch=3, master=ADDRESS)


def lead(epoch: int, *others: int) -> LeadGroup:
    return LeadGroup(epoch=epoch, members=frozenset({1, *others}), set_version=epoch)


def follow(epoch: int) -> FollowMaster:
    return FollowMaster(epoch=epoch, master=2, address="10.0.0.2:10911")


async def test_a_broker_is_fenced_from_its_start() -> None:
    parts = ControlledParts()
    assert parts.role.is_fenced
    assert not parts.role.is_master


async def test_a_promoted_broker_notes_its_epoch_and_is_fenced_until_it_has_a_lease() -> None:
    parts = ControlledParts(min_in_sync_replicas=1)
    await parts.transitions.lead(1, lead(3))
    assert EpochFile(EPOCHS, parts.files).load() == (EpochEntry(3, 0),)
    assert parts.role == Role(role=BrokerRole.SYNC_MASTER, broker_id=0, epoch=3, is_fenced=True)
    parts.transitions.fence(is_fenced=False)
    assert parts.role.is_active
    parts.append()
    assert parts.store.bounds("orders", 0) == (0, 1)
    assert parts.mode.sync_set.state.members == {1}
    assert parts.transitions.facts() == LogFacts(
        epoch=3, end=100, confirmed=100, members=frozenset({1}), set_version=3
    )


async def test_a_failed_disk_is_noted_and_the_log_counts_as_whole_no_more() -> None:
    parts = ControlledParts()
    await parts.transitions.lead(1, lead(3))
    assert parts.transitions.disk_failure is None
    assert not parts.transitions.can_be_replaced
    parts.store.fail("EIO")
    assert "EIO" in str(parts.transitions.disk_failure)
    parts.transitions.note_failure()
    assert not parts.note.is_whole


async def test_a_log_that_lacks_something_does_so_until_its_disk_is_replaced() -> None:
    parts = ControlledParts(is_log_whole=False)
    parts.store.fail("EIO")
    parts.transitions.confirmed(100, is_whole=True)
    assert not parts.transitions.may_be_elected


async def test_a_failure_that_the_disk_does_not_note_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = ControlledParts()

    def broken() -> None:
        raise StoreError("EIO")

    parts.note.note_failed = broken  # type: ignore[method-assign]
    parts.transitions.note_failure()
    assert "does not take a note of that: start this broker again with an empty" in caplog.text


async def test_the_first_epoch_of_a_log_covers_all_of_it() -> None:
    parts = ControlledParts()
    parts.append(5)
    await parts.transitions.lead(1, lead(1))
    await parts.transitions.lead(1, lead(2))
    assert parts.mode.epochs.entries == (EpochEntry(1, 0), EpochEntry(2, 500))


async def test_an_epoch_that_the_log_has_is_not_begun_again() -> None:
    parts = ControlledParts()
    await parts.transitions.lead(1, lead(3))
    with pytest.raises(StoreError, match="has epoch 3 already: it cannot begin 3"):
        await parts.transitions.lead(1, lead(3))
    assert parts.role.is_fenced
    assert not parts.role.is_master


async def test_services_wait_until_all_that_they_noted_in_the_log_is_confirmed() -> None:
    parts = ControlledParts()
    await parts.transitions.lead(1, lead(3, 2))
    parts.transitions.fence(is_fenced=False)
    parts.append()
    parts.transitions.fence(is_fenced=True)
    parts.transitions.fence(is_fenced=False)
    assert parts.role.is_fenced
    replica = ReplicaReportFacts(broker_id=2, report=100)
    parts.mode.sync_set.reported(replica, SentFrame(100, 0))
    parts.transitions.fence(is_fenced=False)
    assert parts.role.is_active


async def test_a_demoted_master_follows_and_shows_no_more_than_was_confirmed() -> None:
    parts = ControlledParts()
    await parts.transitions.lead(1, lead(3, 2))
    parts.transitions.fence(is_fenced=False)
    parts.append(3)
    assert parts.store.bounds("orders", 0) == (0, 0)
    await parts.transitions.follow(1, follow(4))
    assert parts.role == Role(role=BrokerRole.SLAVE, broker_id=1, epoch=4, master="10.0.0.2:10911")
    assert parts.store.bounds("orders", 0) == (0, 0)
    parts.transitions.fence(is_fenced=True)
    assert not parts.role.is_fenced


async def test_a_promoted_replica_shows_all_of_its_log() -> None:
    parts = ControlledParts()
    await parts.transitions.lead(1, lead(3, 2))
    parts.append(3)
    await parts.transitions.follow(1, follow(4))
    await parts.transitions.lead(1, lead(5))
    assert parts.store.bounds("orders", 0) == (0, 3)
    assert parts.mode.epochs.entries == (EpochEntry(3, 0), EpochEntry(5, 300))


async def test_a_torn_record_is_cut_before_the_new_epoch_begins() -> None:
    source, parts = ControlledParts(), ControlledParts()
    source.append(2)
    parts.store.raw.append(0, bytes(source.store.raw.read(0, 150)))
    await parts.transitions.lead(1, lead(3))
    assert parts.store.raw.end == 100
    await parts.transitions.lead(1, lead(4))
    assert parts.mode.epochs.entries == (EpochEntry(3, 0), EpochEntry(4, 100))


async def test_the_set_of_a_master_is_the_controllers() -> None:
    parts = ControlledParts()
    await parts.transitions.lead(1, lead(3))
    parts.transitions.adopt(AdoptSet(members=frozenset({1, 2}), set_version=9))
    assert parts.mode.sync_set.state.members == {1, 2}


async def test_a_log_that_may_lack_something_is_whole_once_it_has_what_its_master_confirmed() -> (
    None
):
    parts = ControlledParts(is_log_whole=False)
    assert not parts.transitions.may_be_elected
    parts.transitions.confirmed(100, is_whole=False)
    assert (parts.transitions.may_be_elected, parts.note.is_whole) == (False, False)
    for _ in range(2):
        parts.transitions.confirmed(200, is_whole=True)
    assert (parts.transitions.may_be_elected, parts.note.is_whole) == (True, True)


async def test_an_elected_broker_has_the_log_that_counts() -> None:
    parts = ControlledParts(is_log_whole=False)
    await parts.transitions.lead(1, lead(3))
    assert parts.transitions.may_be_elected


async def test_a_log_that_lost_its_tail_is_compared_without_it() -> None:
    parts = ControlledParts()
    parts.append(3)
    parts.mode.epochs.append(1, 0)
    parts.mode.epochs.append(2, 500)
    assert parts.transitions.facts() == LogFacts(epoch=1, end=300, confirmed=0)


async def test_the_log_streams_from_an_elected_master_to_its_replica() -> None:
    master, replica = ControlledParts(), ControlledParts()
    tasks = [await master.serve(), await replica.serve()]
    await master.transitions.lead(1, lead(3))
    master.append(3)
    await replica.transitions.follow(2, follow(3))
    stream = f"127.0.0.1:{master.mode.stream_server.port}"
    replica.mode.role.change(replace(replica.role, master_stream=stream))
    await asyncio.sleep(1)
    assert replica.store.raw.end == 300
    assert replica.mode.epochs.entries == (EpochEntry(3, 0),)
    assert master.mode.sync_set.wanted(15_000) == {1, 2}
    # The replica is promoted: its stream is over, and the master's bytes do not reach it any more.
    await replica.transitions.lead(2, LeadGroup(epoch=4, members=frozenset({2}), set_version=4))
    master.append(3)
    await asyncio.sleep(1)
    assert replica.store.raw.end == 300
    # The old master follows, and what only it had is cut.
    await master.transitions.follow(1, follow(4))
    stream = f"127.0.0.1:{replica.mode.stream_server.port}"
    master.mode.role.change(replace(master.role, master_stream=stream))
    replica.append(1)
    await asyncio.sleep(1)
    assert master.store.raw.end == 400
    assert bytes(master.store.raw.read(0, 400)) == bytes(replica.store.raw.read(0, 400))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_epochs_of_deleted_files_are_forgotten() -> None:
    parts = ControlledParts()
    await parts.transitions.lead(1, lead(3))
    parts.transitions.check_epochs()
    assert parts.mode.epochs.entries == (EpochEntry(3, 0),)


async def test_the_log_of_a_new_master_is_on_the_disk_before_its_epoch_is_noted() -> None:
    parts = ControlledParts()
    end = parts.append(3)
    assert parts.store.flushed_position < end
    await parts.transitions.lead(1, lead(3))
    assert parts.store.flushed_position == end


class Scene:
    """A replica, and a master that says where its stream is."""

    def __init__(self, stream: str | None) -> None:
        self.stream = stream
        self.asked = 0
        self.parts = ControlledParts()
        router = Router()
        router.add(ExchangeHaInfo, self._answer)
        self.server = Server(router, host="127.0.0.1", port=10911, clock=self.parts.clock)
        pool = ChannelPool(clock=self.parts.clock)
        self.locator = MasterLocator(
            self.parts.mode.role, self.parts.mode.stream_client, pool, self.parts.clock
        )

    def _answer(self, _call: ExchangeHaInfo, _peer: Peer) -> ExchangeHaInfoReply:
        self.asked += 1
        return ExchangeHaInfoReply(master_ha_address=self.stream)


async def test_the_master_is_asked_until_it_says_where_its_stream_is() -> None:
    scene = Scene(None)
    scene.parts.mode.role.change(FOLLOWER)
    async with scene.server, background(scene.locator.serve()):
        await asyncio.sleep(0.5)
        assert scene.asked > 1
        assert scene.parts.role.master_stream is None
        scene.stream = "127.0.0.1:10912"
        await asyncio.sleep(0.5)
        assert scene.parts.role.master_stream == "127.0.0.1:10912"


@pytest.mark.parametrize("stream", ["nowhere", "host:99999999", ":"])
async def test_an_address_that_is_none_is_not_followed(stream: str) -> None:
    scene = Scene(stream)
    scene.parts.mode.role.change(FOLLOWER)
    async with scene.server:
        await scene.locator.step()
    assert scene.asked == 1
    assert scene.parts.role == FOLLOWER


async def test_a_master_that_cannot_be_reached_is_asked_again_later() -> None:
    scene = Scene(None)
    scene.parts.mode.role.change(FOLLOWER)
    await scene.locator.step()
    assert scene.parts.role == FOLLOWER


@pytest.mark.parametrize(
    "role",
    [
        Role(role=BrokerRole.SYNC_MASTER, epoch=3),
        Role(role=BrokerRole.SLAVE, broker_id=2, epoch=3, is_fenced=True),
    ],
)
async def test_nobody_is_asked_without_a_master(role: Role) -> None:
    scene = Scene("127.0.0.1:10912")
    scene.parts.mode.role.change(role)
    async with scene.server:
        await scene.locator.step()
    assert scene.asked == 0


async def test_an_answer_for_an_earlier_role_is_not_taken() -> None:
    scene = Scene("127.0.0.1:10912")
    scene.parts.mode.role.change(FOLLOWER)
    async with scene.server:
        task = asyncio.create_task(scene.locator.step())
        await asyncio.sleep(0)
        later = Role(role=BrokerRole.SLAVE, broker_id=2, epoch=4, master="10.0.0.9:10911")
        scene.parts.mode.role.change(later)
        await task
    assert scene.parts.role == later
