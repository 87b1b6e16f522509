"""Defects of replication, planted to show that the replicated workload finds such bugs.

Each takes away one of the rules by which acknowledged messages survive their master.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from roquet.broker.replication.confirmation import sync_set
from roquet.broker.replication.confirmation.master_term import MasterTermCell
from roquet.broker.replication.confirmation.replica_places import ReplicaPlaces
from roquet.broker.replication.confirmation.set_acknowledgements import SetAcknowledgements
from roquet.broker.replication.confirmation.sync_set import SyncSet
from roquet.broker.replication.control.machine_boot import BootNote
from roquet.broker.replication.stream.confirmed_view import ConfirmedView
from roquet.broker.replication.stream.epoch_framing import (
    EpochMasterFraming,
    EpochReplicaFraming,
)
from roquet.broker.replication.stream.epoch_log import EpochLog
from roquet.broker.replication.stream.stream_client import StreamClient
from roquet.broker.services.revive import PopRevive
from roquet.rules.election import elect
from roquet.rules.election.group import ReplicaGroup
from roquet.rules.replication.acknowledgement import PutStatus
from roquet.rules.replication.sync_state import ReplicaReportFacts, SyncState, may_join
from roquet.store.replication.replicated_log import ReplicatedLog
from roquet.wire.replication.epoch_stream import ReplicaHandshake
from simulation.patching import patched
from simulation.simulator import PlantedDefect


@contextmanager
def unwaited_acknowledgement() -> Iterator[None]:
    """A master acknowledges without waiting for its replicas."""
    status = SetAcknowledgements.status

    async def hurry(self: SetAcknowledgements, position: int) -> PutStatus:
        if self._role.current.is_master:
            return PutStatus.PUT_OK
        return await status(self, position)

    with (
        patched(SetAcknowledgements, "wait", lambda *_: None),
        patched(SetAcknowledgements, "status", hurry),
    ):
        yield


@contextmanager
def ignored_lease() -> Iterator[None]:
    """A master acknowledges and takes messages although its lease is over."""

    def trust(self: MasterTermCell, epoch: int) -> bool:
        return self.current is not None and self.current.epoch == epoch

    with patched(MasterTermCell, "may_acknowledge", trust):
        yield


@contextmanager
def unapproved_shrink() -> Iterator[None]:
    """A master leaves out a replica that it cannot reach before the controller has agreed."""
    disconnected = SyncSet.disconnected

    def shrink(self: SyncSet, broker_id: int) -> None:
        disconnected(self, broker_id)
        if self.state.members:
            self.state = replace(self.state, members=self.state.members - {broker_id})
            self.confirm()

    with patched(SyncSet, "disconnected", shrink):
        yield


@contextmanager
def frozen_master() -> Iterator[None]:
    """A master that was frozen acknowledges alone after it was replaced, as Apache's does."""
    with ignored_lease(), unapproved_shrink():
        yield


@contextmanager
def unconfirmed_reads() -> Iterator[None]:
    """Consumers see messages that are not confirmed."""
    show = ConfirmedView.show

    def show_all(self: ConfirmedView, _position: int | None) -> None:
        show(self, None)

    with patched(ConfirmedView, "show", show_all):
        yield


@contextmanager
def skipped_truncation() -> Iterator[None]:
    """A replica keeps a tail that its new master never had."""

    def keep(self: ReplicatedLog, _position: int) -> None:
        self.cut_torn()

    with patched(ReplicatedLog, "truncate", keep):
        yield


@contextmanager
def excessive_truncation() -> Iterator[None]:
    """A replica cuts its log to the start of the latest epoch that its master has, too."""
    find = EpochReplicaFraming._consistent_point

    def too_far(self: EpochReplicaFraming, master: Any) -> int:
        raw, point = self._replica.store.raw, find(self, master)
        starts = [entry.start for entry in self._replica.epochs.within(raw.end)]
        return max((start for start in starts if raw.begin <= start < point), default=point)

    with patched(EpochReplicaFraming, "_consistent_point", too_far):
        yield


@contextmanager
def outsider_election() -> Iterator[None]:
    """The controller elects the best of all live brokers, whether or not it is in the set."""
    best = elect._best

    def best_of_all(group: ReplicaGroup, request: Any, facts: Any, _members: Any) -> int | None:
        return best(group, request, facts, group.replicas)

    with patched(elect, "_best", best_of_all):
        yield


@contextmanager
def learner_in_set() -> Iterator[None]:
    """A master takes a learner into the set, from where it is elected."""

    def join(replica: ReplicaReportFacts, state: SyncState, **facts: int) -> bool:
        return may_join(replace(replica, is_learner=False), state, **facts)

    with patched(sync_set, "may_join", join):
        yield


@contextmanager
def repeated_epoch() -> Iterator[None]:
    """An election does not begin a new epoch."""
    led_by = elect._led_by

    def keep(group: ReplicaGroup, winner: int) -> ReplicaGroup:
        return replace(led_by(group, winner), master_epoch=max(group.master_epoch, 1))

    with patched(elect, "_led_by", keep):
        yield


@contextmanager
def unflushed_report() -> Iterator[None]:
    """A replica that has to flush before it acknowledges does not."""
    report = StreamClient._report

    def too_early(self: StreamClient, _log_end: int) -> None:
        report(self, self._store.raw.end)

    async def at_once(self: StreamClient) -> None:
        while True:
            await self._appended.wait()
            self._appended.clear()
            self._report(0)

    with (
        patched(StreamClient, "_report", too_early),
        patched(StreamClient, "_acknowledge", at_once),
    ):
        yield


@contextmanager
def trusted_log() -> Iterator[None]:
    """A broker whose machine lost its power takes its log for whole."""
    begin = BootNote.begin

    def trust(self: BootNote, **facts: Any) -> bool:
        return begin(self, **facts | {"is_trusted": True})

    with patched(BootNote, "begin", trust):
        yield


@contextmanager
def forgotten_epoch() -> Iterator[None]:
    """A master does not note the epoch that it begins."""
    append = EpochLog.append

    def forget(self: EpochLog, epoch: int, start: int) -> None:
        if not self.entries:
            append(self, epoch, start)
        self.latest = max(self.latest, epoch)

    with patched(EpochLog, "append", forget):
        yield


@contextmanager
def unsafe_answers() -> Iterator[None]:
    """A master answers ends of transactions and acknowledgements of pops that may be cut off."""
    with patched(SetAcknowledgements, "may_lose_stored", False):
        yield


@contextmanager
def unrevived_pops() -> Iterator[None]:
    """A new master knows nothing of the messages that were popped before it led."""

    def forget(_revive: PopRevive) -> Iterator[None]:
        return iter(())

    with patched(PopRevive, "restoring", forget):
        yield


@contextmanager
def leaving_member() -> Iterator[None]:
    """A member leaves the set though those who stay lack what was acknowledged.

    While its leave is asked for, it counts for acknowledgements as before. Not among `DEFECTS`: it
    takes failures of two brokers, and lives in which two logs are enough have those of one.
    """
    held_by = SyncSet._held_by

    def by_anybody(self: SyncSet, _members: frozenset[int], needed: int) -> int:
        return held_by(self, self.state.acknowledging, needed)

    with (
        patched(SyncSet, "keep_acknowledged", lambda *_: True),
        patched(SyncSet, "_held_by", by_anybody),
    ):
        yield


@contextmanager
def stolen_place() -> Iterator[None]:
    """The newest connection that names a replica's id is that replica, until it ends."""
    greet = EpochMasterFraming._greet

    def steal(self: EpochMasterFraming, handshake: ReplicaHandshake) -> None:
        greet(self, handshake)
        self._master.places._holders[handshake.broker_id] = self._number

    def report(self: ReplicaPlaces, connection: int, facts: Any, sent: Any) -> None:
        if self.is_holder(connection, facts.broker_id):
            self._sync_set.reported(facts, sent)

    def forget(self: ReplicaPlaces, connection: int, broker_id: int) -> None:
        if self.is_holder(connection, broker_id):
            del self._holders[broker_id]
            self._sync_set.disconnected(broker_id)

    with (
        patched(EpochMasterFraming, "_greet", steal),
        patched(ReplicaPlaces, "report", report),
        patched(ReplicaPlaces, "forget", forget),
    ):
        yield


DEFECTS: Final[Mapping[str, PlantedDefect]] = MappingProxyType(
    {
        "unwaited-acknowledgement": unwaited_acknowledgement,
        "ignored-lease": ignored_lease,
        "unapproved-shrink": unapproved_shrink,
        "frozen-master": frozen_master,
        "unconfirmed-reads": unconfirmed_reads,
        "skipped-truncation": skipped_truncation,
        "excessive-truncation": excessive_truncation,
        "outsider-election": outsider_election,
        "learner-in-set": learner_in_set,
        "repeated-epoch": repeated_epoch,
        "unflushed-report": unflushed_report,
        "trusted-log": trusted_log,
        "forgotten-epoch": forgotten_epoch,
        "unsafe-answers": unsafe_answers,
        "unrevived-pops": unrevived_pops,
        "stolen-place": stolen_place,
    }
)
"""By name."""
