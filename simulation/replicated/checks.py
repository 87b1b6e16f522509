"""Checks of the replicated workload, once the group has healed or had the time to.

lost        an acknowledged message is not in the log of the healed group where its sender was told
doubled     two messages had one queue offset, or a queue of the healed group has a hole
masters     two brokers acknowledged in one epoch
lease       a broker acknowledged without a lease of its epoch
vanished    a consumer was given a message that is not there any more
epochs      an epoch or a version went back, or one epoch had two masters
outsider    a broker was elected that was not in the sync-state set, or a learner was in it
unequal     logs of the healed group differ
unhealed    the group did not heal in time after the last fault

Two more run with the simulation, see `confirmed_prefix`: fork and cut.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from roquet.rules.election.group import ReplicaGroup
from roquet.wire.records.record import Record
from simulation.replicated.history import (
    AcknowledgedOffset,
    AcknowledgedPosition,
    GrantedLease,
    RoleChange,
    SeenMessage,
    StoredState,
)
from simulation.replicated.servers import host_of

Place = tuple[int, int]
"""Queue id and offset."""


class ReplicatedOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the checks read, at the end of a simulation."""

    offsets: Sequence[AcknowledgedOffset]
    positions: Sequence[AcknowledgedPosition]
    seen: Sequence[SeenMessage]
    states: Sequence[StoredState]
    operated: frozenset[int]
    """Epochs of masters that an operator has had elected."""
    leases: Sequence[GrantedLease]
    roles: Sequence[RoleChange]
    members: frozenset[int]
    """Brokers that may be in the set."""
    stored: Mapping[Place, str] | None
    """Bodies of the healed group's messages; None: it has not healed."""
    logs: Mapping[str, bytes]
    """Logs of the healed group, by host."""
    unhealed: str | None
    """Why the group does not count as healed; None: it has."""


def findings(outcome: ReplicatedOutcome) -> list[str]:
    """Every broken promise."""
    found = [
        *doubled_acknowledgements(outcome.offsets),
        *masters(outcome.positions),
        *unleased(outcome.positions, outcome.leases),
        *epochs(outcome.states),
        *outsiders(outcome.states, outcome.members, outcome.operated),
        *roles(outcome.roles),
    ]
    if outcome.unhealed is not None:
        found.append(f"unhealed: {outcome.unhealed}")
    if outcome.stored is not None:
        found += lost(outcome.offsets, outcome.stored)
        found += vanished(outcome.seen, outcome.stored)
        found += holes(outcome.stored)
        found += unequal(outcome.logs)
    return found


def stored_messages(records: Sequence[Record], topic: str) -> tuple[dict[Place, str], list[str]]:
    """Bodies of a topic's messages by their places, and findings of places that have two."""
    bodies: dict[Place, str] = {}
    found: list[str] = []
    for record in records:
        if record.topic != topic:
            continue
        place, body = (record.queue_id, record.queue_offset), record.body.decode()
        if place in bodies:
            found.append(f"doubled: {_text(place)} is {bodies[place]} and {body} in one log")
        bodies[place] = body
    return bodies, found


def lost(offsets: Sequence[AcknowledgedOffset], stored: Mapping[Place, str]) -> Iterator[str]:
    """Acknowledged messages that are not where their senders were told."""
    for message in offsets:
        place = message.queue_id, message.offset
        if stored.get(place) != message.body:
            yield (
                f"lost: {message.body} was acknowledged by {message.host} at {message.at_ms} as "
                f"{_text(place)}, where {stored.get(place, 'nothing')} is"
            )


def doubled_acknowledgements(offsets: Sequence[AcknowledgedOffset]) -> Iterator[str]:
    """Messages that were acknowledged with one queue offset."""
    bodies: dict[Place, AcknowledgedOffset] = {}
    for message in offsets:
        place = message.queue_id, message.offset
        known = bodies.setdefault(place, message)
        if known.body != message.body:
            yield (
                f"doubled: {_text(place)} was acknowledged as {known.body} by {known.host} and "
                f"as {message.body} by {message.host}"
            )


def holes(stored: Mapping[Place, str]) -> Iterator[str]:
    """Queues whose offsets do not follow each other from 0 on."""
    ends: dict[int, int] = {}
    for queue_id, offset in stored:
        ends[queue_id] = max(ends.get(queue_id, 0), offset + 1)
    for queue_id, end in sorted(ends.items()):
        for offset in range(end):
            if (queue_id, offset) not in stored:
                yield f"doubled: {_text((queue_id, offset))} is a hole, the queue ends at {end}"


def masters(positions: Sequence[AcknowledgedPosition]) -> Iterator[str]:
    """Epochs in which two brokers acknowledged."""
    first: dict[int, str] = {}
    told: set[int] = set()
    for position in positions:
        host = first.setdefault(position.epoch, position.host)
        if host != position.host and position.epoch not in told:
            told.add(position.epoch)
            yield f"masters: {host} and {position.host} acknowledged in epoch {position.epoch}"


def unleased(
    positions: Sequence[AcknowledgedPosition], leases: Sequence[GrantedLease]
) -> Iterator[str]:
    """The first acknowledgement of each broker and epoch without a lease."""
    told: set[tuple[str, int]] = set()
    by_master: dict[tuple[str, int], list[GrantedLease]] = {}
    for lease in leases:  # in the order of time, and all of one length
        by_master.setdefault((host_of(lease.broker_id), lease.epoch), []).append(lease)
    for position in positions:
        key = position.host, position.epoch
        granted = by_master.get(key, [])
        at = bisect_right(granted, position.at_ms, key=lambda lease: lease.at_ms)
        if key not in told and not (at and position.at_ms < granted[at - 1].until_ms):
            told.add(key)
            yield (
                f"lease: {position.host} acknowledged in epoch {position.epoch} at "
                f"{position.at_ms} without a lease"
            )


def vanished(seen: Sequence[SeenMessage], stored: Mapping[Place, str]) -> Iterator[str]:
    """Messages that consumers were given, and that are not there any more; each place once."""
    told: set[Place] = set()
    for message in seen:
        place = message.queue_id, message.offset
        if stored.get(place) != message.body and place not in told:
            told.add(place)
            yield (
                f"vanished: {message.host} gave {message.body} to a consumer at {message.at_ms} "
                f"as {_text(place)}, where {stored.get(place, 'nothing')} is"
            )


def epochs(states: Sequence[StoredState]) -> Iterator[str]:
    """Stored states in which an epoch or a version went back, or an epoch changed its master."""
    for before, after in pairwise(state.group for state in states):
        old, new = before.master_epoch, after.master_epoch
        if new < old:
            yield f"epochs: epoch {new} was stored after epoch {old}"
        elif new == old and before.master != after.master:
            yield f"epochs: {before.master} and {after.master} lead in epoch {new}"
        if after.set_version < before.set_version:
            yield f"epochs: set {after.set_version} was stored after {before.set_version}"
        elif after.set_version == before.set_version and after.in_sync != before.in_sync:
            yield f"epochs: set {after.set_version} was stored with different members"


def outsiders(
    states: Sequence[StoredState], allowed: frozenset[int], operated: frozenset[int] = frozenset()
) -> Iterator[str]:
    """Elections of brokers that were not in the set before, and members that may only learn.

    An operator may elect anybody.
    """
    for learners in {state.group.in_sync - allowed for state in states} - {frozenset()}:
        yield f"outsider: {sorted(learners)} may only learn, and was in the set"
    for before, after in pairwise(state.group for state in states):
        is_free = _is_election(before, after) and after.master_epoch not in operated
        if is_free and after.master not in before.in_sync:
            yield (
                f"outsider: {after.master} was elected in epoch {after.master_epoch}, in sync "
                f"were {sorted(before.in_sync)}"
            )


def _is_election(before: ReplicaGroup, after: ReplicaGroup) -> bool:
    """Whether a master was elected in a group that had one before."""
    changed = (before.master, before.master_epoch) != (after.master, after.master_epoch)
    return changed and after.master is not None and bool(before.in_sync)


def roles(changes: Sequence[RoleChange]) -> Iterator[str]:
    """Brokers whose epoch went back while their process ran, and epochs led by two of them."""
    latest: dict[tuple[str, int], int] = {}
    leaders: dict[int, str] = {}
    for change in changes:
        key = change.host, change.process
        if change.epoch < latest.get(key, 0):
            yield f"epochs: {change.host} went back from epoch {latest[key]} to {change.epoch}"
        latest[key] = change.epoch
        if change.leads and leaders.setdefault(change.epoch, change.host) != change.host:
            yield f"masters: {leaders[change.epoch]} and {change.host} led in epoch {change.epoch}"


def unequal(logs: Mapping[str, bytes]) -> Iterator[str]:
    """Logs that differ from the first one."""
    hosts = sorted(logs)
    for host in hosts[1:]:
        if logs[host] != logs[hosts[0]]:
            yield (
                f"unequal: the logs of {hosts[0]} and {host} differ, with {len(logs[hosts[0]])} "
                f"and {len(logs[host])} bytes"
            )


def _text(place: Place) -> str:
    return f"queue {place[0]} offset {place[1]}"
