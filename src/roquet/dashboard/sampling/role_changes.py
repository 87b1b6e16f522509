"""Role changes: new masters, and replicas that leave and join, between two samples."""

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

import msgspec

from roquet.admin.replicas import ReplicaStatus


class ClusterEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a cluster that a sample noticed."""

    at_ms: int
    """Time of the sample, at most one period later than the change."""
    text: str
    path: str
    """Page of the dashboard that shows more."""


def role_changes(
    before: Sequence[ReplicaStatus], after: Sequence[ReplicaStatus], at_ms: int
) -> list[ClusterEvent]:
    """Changes between two samples of all brokers; none where `before` is empty."""
    old, new = _by_broker(before), _by_broker(after)
    names = sorted(old.keys() | new.keys()) if old else []
    return [
        ClusterEvent(at_ms=at_ms, text=f"{name}: {text}", path=f"/brokers/{quote(name, safe='')}")
        for name in names
        for text in _changes(old.get(name, {}), new.get(name, {}))
    ]


def _by_broker(statuses: Sequence[ReplicaStatus]) -> dict[str, dict[str, ReplicaStatus]]:
    """Statuses by broker name and address."""
    found: dict[str, dict[str, ReplicaStatus]] = {}
    for one in statuses:
        found.setdefault(one.broker, {})[one.address] = one
    return found


def _changes(old: Mapping[str, ReplicaStatus], new: Mapping[str, ReplicaStatus]) -> Iterator[str]:
    was, now = _master(old), _master(new)
    if now != was:
        yield f"{now} is master now" if now else f"the master {was} is away"
    for address in sorted(old.keys() | new.keys()):
        if address not in new:
            if address != was:
                yield f"{address} is gone"
        elif address not in old:
            if address != now:
                yield f"{address} is new"
        else:
            yield from _status_changes(old[address], new[address])


def _master(statuses: Mapping[str, ReplicaStatus]) -> str | None:
    return next((one.address for one in statuses.values() if one.is_master), None)


def _status_changes(old: ReplicaStatus, new: ReplicaStatus) -> Iterator[str]:
    if (old.fault is None) != (new.fault is None):
        yield f"{new.address} {'answers again' if new.fault is None else 'does not answer'}"
    if not new.is_master and {old.is_in_sync, new.is_in_sync} == {True, False}:
        yield f"{new.address} {'is in sync again' if new.is_in_sync else 'is out of sync'}"
