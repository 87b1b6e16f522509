"""Defects of replication, planted to show that the replicated workload finds such bugs.

Each takes away one of the rules by which acknowledged messages survive their master.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final

from msgspec.structs import replace

from roquet.broker.log.flush import ConfirmedView
from roquet.broker.replication.confirmation import sync_set
from roquet.broker.replication.confirmation.set_acknowledgements import (
    MasterTermCell,
    SetAcknowledgements,
)
from roquet.broker.replication.confirmation.sync_set import ReplicaPlaces, SyncSet
from roquet.broker.replication.control.machine_boot import BootNote
from roquet.broker.replication.stream import epoch_framing, stream_client
from roquet.broker.replication.stream.epoch_framing import EpochLog
from roquet.broker.services.revive import PopRevive
from roquet.controller import elections
from roquet.rules.election.elect import ElectionFacts, ElectionRequest, ElectionResult
from roquet.rules.election.group import ReplicaGroup
from roquet.rules.replication.acknowledgement import PutStatus, ReplicaAck
from roquet.rules.replication.epochs import Epochs
from roquet.rules.replication.sync_state import ReplicaReportFacts, SyncState
from roquet.store.replication.replicated_log import ReplicatedLog
from simulation.patching import PlantedDefect, by_name, patched, planted, wrapped


@contextmanager
def unwaited_acknowledgement() -> Iterator[None]:
    """A master acknowledges without waiting for its replicas."""

    async def hurry(status: Any, self: Any, position: int) -> PutStatus:
        if self._role.current.is_master:
            return PutStatus.PUT_OK
        decision: PutStatus = await status(self, position)
        return decision

    with (
        patched(SetAcknowledgements, "wait", lambda *_: None),
        wrapped(SetAcknowledgements, "status", hurry),
    ):
        yield


@planted(MasterTermCell, "may_acknowledge")
def ignored_lease(_may: Any, term: MasterTermCell, epoch: int) -> bool:
    """A master acknowledges and takes messages although its lease is over."""
    return term.current is not None and term.current.epoch == epoch


@planted(SyncSet, "disconnected")
def unapproved_shrink(disconnected: Any, members: SyncSet, broker_id: int) -> None:
    """A master leaves out a replica that it cannot reach before the controller has agreed."""
    disconnected(members, broker_id)
    if members.state.members:
        left = members.state.members - {broker_id}
        members.state = replace(members.state, members=left)
        members.confirm()


@contextmanager
def frozen_master() -> Iterator[None]:
    """A master that was frozen acknowledges alone after it was replaced, as Apache's does."""
    with ignored_lease(), unapproved_shrink():
        yield


@planted(ConfirmedView, "show")
def unconfirmed_reads(show: Any, view: ConfirmedView, _position: int | None) -> None:
    """Consumers see messages that are not confirmed."""
    show(view, None)


@planted(ReplicatedLog, "truncate")
def skipped_truncation(_truncate: Any, log: ReplicatedLog, _position: int) -> None:
    """A replica keeps a tail that its new master never had."""
    log.cut_torn()


@planted(epoch_framing, "consistent_point")
def excessive_truncation(consistent_point: Any, own: Epochs, *logs: Any) -> int | None:
    """A replica cuts its log to the start of the latest epoch that its master has, too."""
    point: int | None = consistent_point(own, *logs)
    starts = [entry.start for entry in own if point is not None and entry.start < point]
    return max(starts, default=point)


@planted(elections, "elect")
def outsider_election(
    elect: Any, group: ReplicaGroup, request: ElectionRequest, facts: ElectionFacts
) -> Any:
    """The controller elects the best of all live brokers, whether or not it is in the set."""
    return elect(group, replace(request, unclean=True), facts)


@planted(elections, "elect")
def repeated_epoch(elect: Any, group: ReplicaGroup, *facts: Any) -> ElectionResult:
    """An election does not begin a new epoch."""
    result: ElectionResult = elect(group, *facts)
    if result.group.master is None:
        return result
    return replace(result, group=replace(result.group, master_epoch=max(group.master_epoch, 1)))


@planted(sync_set, "may_join")
def learner_in_set(
    may_join: Any, replica: ReplicaReportFacts, state: SyncState, **facts: int
) -> Any:
    """A master takes a learner into the set, from where it is elected."""
    return may_join(replace(replica, is_learner=False), state, **facts)


@contextmanager
def unflushed_report() -> Iterator[None]:
    """A replica that has to flush before it acknowledges does not, and one that need not does."""
    mistaken = SimpleNamespace(APPENDED=ReplicaAck.FLUSHED, FLUSHED=ReplicaAck.APPENDED)
    with patched(stream_client, "ReplicaAck", mistaken):
        yield


@planted(BootNote, "begin")
def trusted_log(begin: Any, note: BootNote, **facts: Any) -> Any:
    """A broker whose machine lost its power takes its log for whole."""
    return begin(note, **facts | {"is_trusted": True})


@planted(EpochLog, "append")
def forgotten_epoch(append: Any, log: EpochLog, epoch: int, start: int) -> None:
    """A master does not note the epoch that it begins."""
    if not log.entries:
        append(log, epoch, start)
    log.latest = max(log.latest, epoch)


@contextmanager
def unsafe_answers() -> Iterator[None]:
    """A master answers ends of transactions and acknowledgements of pops that may be cut off."""
    with patched(SetAcknowledgements, "may_lose_stored", False):
        yield


@planted(PopRevive, "restoring")
def unrevived_pops(*_: object) -> Iterator[None]:
    """A new master knows nothing of the messages that were popped before it led."""
    return iter(())


@contextmanager
def leaving_member() -> Iterator[None]:
    """A member leaves the set though those who stay lack what was acknowledged.

    While its leave is asked for, it counts for acknowledgements as before. Not among `DEFECTS`: it
    takes failures of two brokers, and lives in which two logs are enough have those of one.
    """

    def by_anybody(held_by: Any, members: SyncSet, _asked: frozenset[int], needed: int) -> Any:
        return held_by(members, members.state.acknowledging, needed)

    with (
        patched(SyncSet, "keep_acknowledged", lambda *_: True),
        wrapped(SyncSet, "held_by", by_anybody),
    ):
        yield


@contextmanager
def stolen_place() -> Iterator[None]:
    """The newest connection that names a replica's id is that replica, also after its end."""
    newest: dict[tuple[ReplicaPlaces, int], int] = {}

    def steal(
        report: Any, places: ReplicaPlaces, connection: int, facts: ReplicaReportFacts, sent: Any
    ) -> None:
        place = places, facts.broker_id
        newest[place] = max(newest.get(place, connection), connection)
        if connection == newest[place]:
            report(places, connection, facts, sent)

    with (
        patched(sync_set, "may_replace", lambda *_: True),
        wrapped(ReplicaPlaces, "report", steal),
    ):
        yield


DEFECTS: Final[Mapping[str, PlantedDefect]] = MappingProxyType(
    by_name(
        unwaited_acknowledgement,
        ignored_lease,
        unapproved_shrink,
        frozen_master,
        unconfirmed_reads,
        skipped_truncation,
        excessive_truncation,
        outsider_election,
        learner_in_set,
        repeated_epoch,
        unflushed_report,
        trusted_log,
        forgotten_epoch,
        unsafe_answers,
        unrevived_pops,
        stolen_place,
    )
)
