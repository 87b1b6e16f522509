"""Cluster overview: brokers with their roles, dead letters, behind jobs and last changes."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from roquet.admin.brokers import BrokerStatus
from roquet.admin.group_info import GroupInfo
from roquet.admin.replicas import ReplicaStatus
from roquet.dashboard.sampling.history import GroupHistory, growth
from roquet.dashboard.sampling.jobs import JobFacts
from roquet.dashboard.sampling.role_changes import ClusterEvent
from roquet.dashboard.sampling.sampler import ClusterSample, rate_of
from roquet.dashboard.security.audit_log import AuditEntry
from roquet.dashboard.visitor_rights import may_see, may_see_cluster

CAUGHT_UP: Final = "caught up"
"""State of a job that has all messages of its topic."""


class BrokerLine(msgspec.Struct, frozen=True, kw_only=True):
    """A broker of the overview; None is what it does not say."""

    broker: str
    broker_id: int
    path: str
    role: str
    """`master` or `replica`; empty where neither is known."""
    in_sync: int | None
    """For a master the number of logs in sync, its own among them."""
    replicas: int
    """Logs of its name."""
    is_in_sync: bool | None
    in_per_s: float | None
    out_per_s: float | None
    disk: float | None
    """Share of the disk in use, from 0 to 1."""
    waiting: int | None
    """Requests that wait, to be stored and to be read for."""
    fault: str | None


class LetterLine(msgspec.Struct, frozen=True, kw_only=True):
    """A group with dead letters."""

    group: str
    path: str
    count: int | None
    """Those that were not sent again, or all where that is not known."""
    grown: int
    """New ones in the last hour."""


class RecentChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change that somebody made here, or one of a role."""

    at_ms: int
    text: str
    path: str
    user: str | None = None
    outcome: str | None = None
    """How a change of somebody ended; None for one of a role."""


def visible_sample(sample: ClusterSample, user: str | None) -> ClusterSample:
    """The part of a sample that a user may see.

    For one who may not see the cluster these are the topics and groups that he may read.
    """
    tables = sample.access
    if may_see_cluster(tables, user):
        return sample
    return replace(
        sample,
        brokers=[],
        topics={n: one for n, one in sample.topics.items() if may_see(tables, user, "topic", n)},
        groups={n: one for n, one in sample.groups.items() if may_see(tables, user, "group", n)},
        replicas=(),
        replica_problems=(),
        problems=(),
    )


def broker_lines(
    brokers: Sequence[BrokerStatus], replicas: Sequence[ReplicaStatus]
) -> list[BrokerLine]:
    """Brokers by name and id, those that need a look first."""
    by_address = {one.address: one for one in replicas}
    lines = [_broker_line(one, by_address.get(one.address), replicas) for one in brokers]
    return sorted(lines, key=lambda line: line.fault is None and line.is_in_sync is not False)


def _broker_line(
    broker: BrokerStatus, status: ReplicaStatus | None, replicas: Sequence[ReplicaStatus]
) -> BrokerLine:
    logs = [one for one in replicas if one.broker == broker.broker]
    is_master = status is not None and status.is_master
    waits = [broker.number(f"{kind}ThreadPoolQueueSize") for kind in ("send", "pull")]
    return BrokerLine(
        broker=broker.broker,
        broker_id=broker.broker_id,
        path=f"/brokers/{quote(broker.broker, safe='')}",
        role="" if status is None else "master" if is_master else "replica",
        in_sync=sum(one.is_in_sync is True for one in logs) if is_master else None,
        replicas=len(logs),
        is_in_sync=None if status is None else status.is_in_sync,
        in_per_s=rate_of(broker.puts_per_s),
        out_per_s=rate_of(broker.gets_per_s),
        disk=broker.number("commitLogDiskRatio"),
        waiting=None if None in waits else int(sum(wait or 0 for wait in waits)),
        fault=broker.fault,
    )


def letter_lines(
    groups: Iterable[GroupInfo], history: Callable[[str], GroupHistory]
) -> list[LetterLine]:
    """Groups with dead letters, those with the most new ones first."""
    lines = [
        LetterLine(
            group=group.name,
            path=f"/dead-letters/{quote(group.name, safe='')}",
            count=letters_left(group),
            grown=int(growth(history(group.name).letters)),
        )
        for group in groups
        if group.dead_letters
    ]
    shown = [line for line in lines if line.count or line.grown]
    return sorted(shown, key=lambda line: (-line.grown, -(line.count or 0), line.group))


def letters_left(group: GroupInfo) -> int | None:
    """Dead letters to look at: all of them where it is not known which were sent again."""
    known = group.dead_letters_not_resent
    return group.dead_letters if known is None else known


def visible_jobs(facts: JobFacts | None, sample: ClusterSample, user: str | None) -> JobFacts:
    """The jobs on topics that a user may see."""
    if facts is None:
        return JobFacts(tables=(), jobs=())
    if may_see_cluster(sample.access, user):
        return facts
    jobs = [row for row in facts.jobs if may_see(sample.access, user, "topic", row.topic)]
    return replace(facts, jobs=jobs, problems=())


def recent_changes(
    entries: Sequence[AuditEntry], events: Iterable[ClusterEvent], limit: int
) -> list[RecentChange]:
    """The newest changes of people, logins left out, and of roles; at most `limit`."""
    changes = [entry for entry in entries if entry.action not in ("login", "logout")]
    made = [
        RecentChange(
            at_ms=entry.at_ms,
            text=" ".join([entry.action, *_named(entry)]),
            path="/audit",
            user=entry.user,
            outcome=entry.outcome.value,
        )
        for entry in changes[:limit]
    ]
    found = [RecentChange(at_ms=one.at_ms, text=one.text, path=one.path) for one in events]
    return sorted([*made, *found], key=lambda one: -one.at_ms)[:limit]


def _named(entry: AuditEntry) -> list[str]:
    """The name of what was changed."""
    return [
        entry.details[key] for key in ("name", "group", "topic", "user") if key in entry.details
    ][:1]
