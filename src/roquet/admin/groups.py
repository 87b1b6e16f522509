"""Groups: members, queue owners, lag and problems of consumer groups; created, changed, deleted.

Brokers are asked, not members: a queue's owners are the members that its broker has seen pulling or
committing, or the one that a broker has decided on. Apache's brokers report no owners.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from roquet.admin.client import AdminClient, check_some_replied, failures_text, without_answers
from roquet.admin.group_answers import GroupAnswers, ask_group, ask_tables, problems
from roquet.admin.group_info import (
    BrokerDecision,
    GroupInfo,
    GroupMemberInfo,
    GroupQueueInfo,
    GroupSummary,
)
from roquet.model.errors import CallError, NotFound, RoquetError, UsageError
from roquet.model.names import check_group, is_internal_group
from roquet.model.printable_text import quantity
from roquet.model.queue import MessageQueue
from roquet.model.settings import suggest
from roquet.model.topic import SubscriptionGroup
from roquet.rules.balance.group_consistency import ownership_fault
from roquet.wire.calls.admin.topic import CreateGroup, DeleteGroup, GetGroup
from roquet.wire.calls.bodies import ClientConnection, QueueProgress
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

NAMED_MAX: Final = 16
"""Queues of a topic with one fault that are listed one by one; more are only counted."""


async def show(admin: AdminClient, name: str) -> GroupInfo:
    """Everything about one group.

    Raises NotFound when no broker knows it, and the first error when none tells of it.
    """
    check_group(name)
    brokers = await admin.brokers()
    tables = await ask_tables(admin, brokers)
    group = await ask_group(admin, brokers, name, tables)
    is_seen = group.connections or any(stats.offset_table for stats in group.stats.values())
    if not is_seen and name not in tables.names:
        for error in (*group.failed.values(), *group.hidden.values()):
            raise error
        hint = suggest(name, tables.names) or "; `roquet group ls` lists all"
        raise NotFound(f"group {name!r} is unknown to every broker{hint}")
    return _info(group, tables.disabled_on(name))


async def show_each(admin: AdminClient) -> AsyncIterator[GroupInfo]:
    """Everything about each group but the system's and our tools' own, one after another.

    Slower than `summaries`, and never more than a few calls at a time. Raises RoquetError behind
    the last group when a broker did not tell which ones it has.
    """
    brokers = await admin.brokers()
    tables = await ask_tables(admin, brokers)
    for name in tables.names:
        if not is_internal_group(name):
            group = await ask_group(admin, brokers, name, tables)
            yield _info(group, tables.disabled_on(name))
    if tables.failed:
        raise RoquetError(f"some groups may be missing: {failures_text(tables.failed)}")


def _info(group: GroupAnswers, disabled: list[str]) -> GroupInfo:
    """The answers of all brokers as one; `disabled` are those that let the group not consume."""
    queues = sorted(_queues(group), key=lambda q: (q.topic, q.broker, q.queue_id))
    members = [_member(connection) for connection in group.members.values()]
    return GroupInfo(
        name=group.name,
        message_model=group.model.name if group.model else None,
        consume_type=group.consume_type.name if group.consume_type else None,
        lag=group.lag,
        members=members if group.knows_members else None,
        queues=queues,
        assignments=[
            BrokerDecision(topic=d.topic, strategy=d.strategy, number=d.number)
            for d in group.decisions
        ],
        disabled_on=disabled,
        problems=[*_disabled(group.name, disabled), *problems(group), *_queue_problems(queues)],
        dead_letters=group.dead_letters.total,
        dead_letters_not_resent=group.dead_letters.not_resent,
    )


async def summaries(admin: AdminClient, *, system: bool = False) -> list[GroupSummary]:
    """A summary of every group; the system's and our tools' own only with `system`.

    Raises the first error when no broker tells which groups it has.
    """
    return (await listed(admin, system=system))[0]


async def listed(
    admin: AdminClient, *, system: bool = False
) -> tuple[list[GroupSummary], Mapping[str, CallError]]:
    """Groups as of `summaries`, and errors by broker name: groups that it alone has are missing."""
    brokers = await admin.brokers()
    tables = await ask_tables(admin, brokers)
    check_some_replied(tables.configs, tables.failed)
    names = [n for n in tables.names if system or not is_internal_group(n)]
    answers = await asyncio.gather(*(ask_group(admin, brokers, n, tables) for n in names))
    found = [
        GroupSummary(
            name=one.name,
            members=len(one.members) if one.knows_members else None,
            lag=one.lag,
            disabled_on=tables.disabled_on(one.name),
            dead_letters=one.dead_letters.total,
            dead_letters_not_resent=one.dead_letters.not_resent,
            faults=one.faults,
        )
        for one in answers
    ]
    return found, tables.failed


async def list_names(admin: AdminClient) -> list[str]:
    """Names of all groups without the system's and our tools' own.

    Those of brokers that do not answer are missing; raises the first error when none answers.
    """
    return (await known_names(admin))[0]


async def known_names(admin: AdminClient) -> tuple[list[str], Mapping[str, CallError]]:
    """Names as of `list_names`, and errors by broker name: their groups may be missing."""
    tables = await ask_tables(admin, await admin.brokers())
    check_some_replied(tables.configs, tables.failed)
    return [name for name in tables.names if not is_internal_group(name)], tables.failed


async def create(admin: AdminClient, name: str, changes: Mapping[str, object]) -> list[str]:
    """Create a group on all brokers, or change it; returns the broker names.

    `changes` maps field names of SubscriptionGroup to values; other fields keep theirs. Attributes
    are changes as well: `{"+priority.factor": "50"}`, `{"-priority.factor": ""}`.
    """
    changes = {"attributes": {}, **changes}
    check_group(name)
    brokers = await admin.brokers()
    answers, silent = await admin.ask_each(brokers, GetGroup(group=name))
    absent = (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    for error in without_answers(silent, *absent).values():
        raise error  # with the defaults in their place, its other settings would be lost
    known = {b: codec.loads(reply.body, SubscriptionGroup) for b, reply in answers.items()}
    defaults = SubscriptionGroup(group_name=name)
    calls = {
        broker: CreateGroup(body=codec.dumps(replace(known.get(broker, defaults), **changes)))
        for broker in brokers
    }
    return await admin.change_each(calls, "made")


def check_has_no_members(group: GroupInfo) -> None:
    """Raise UsageError for a group that has members, or may have some: it is not deleted."""
    if group.members is None:
        raise UsageError(f"group {group.name!r} may have members: {'; '.join(group.problems)}")
    if group.members:
        members = quantity(len(group.members), "member")
        raise UsageError(f"group {group.name!r} has {members}: stop them first")


async def delete(admin: AdminClient, name: str) -> list[str]:
    """Delete a group and its progress on all brokers; returns the broker names."""
    check_group(name)
    brokers = await admin.brokers()
    call = DeleteGroup(group_name=name, clean_offset=True)
    return await admin.change_each(dict.fromkeys(brokers, call), "deleted")


def _disabled(name: str, brokers: Sequence[str]) -> Iterator[str]:
    """The problem of a group that is disabled on some brokers: it explains any lag."""
    if brokers:
        yield (
            f"disabled on {', '.join(brokers)}: its members get no messages; "
            f"`roquet group create {name} --enabled` lets them"
        )


def _member(connection: ClientConnection) -> GroupMemberInfo:
    language = connection.language
    return GroupMemberInfo(
        client_id=connection.client_id,
        address=connection.client_addr,
        language=language.name if language is not None else None,
        version=connection.version,
        subscriptions=connection.subscriptions,
        strategy=connection.strategy,
        release=connection.release,
        properties=connection.properties,
    )


def _queues(group: GroupAnswers) -> Iterator[GroupQueueInfo]:
    decided = {queue: owner for one in group.decisions for queue, owner in one.owners.items()}
    members = group.members.values()
    listened = {topic for member in members for topic in member.subscriptions or ()}
    owned = group.owns_queues
    for stats in group.stats.values():
        for queue, progress in stats.offset_table.items():
            owners = _owners(queue, progress, decided) if owned else None
            wanted = bool(group.members) and (queue.topic in listened or progress.lag > 0)
            yield GroupQueueInfo(
                topic=queue.topic,
                broker=queue.broker_name,
                queue_id=queue.queue_id,
                owners=owners,
                committed=progress.consumer_offset,
                end=progress.broker_offset,
                lag=progress.lag,
                fault=ownership_fault(owners, wanted=wanted),
            )


def _owners(
    queue: MessageQueue, progress: QueueProgress, decided: Mapping[MessageQueue, str]
) -> list[str] | None:
    """The owners seen if several; else the one that a broker decided on, else the one seen."""
    seen = progress.owners
    if seen is None or len(seen) > 1:
        return seen
    return [decided[queue]] if queue in decided else seen


def _queue_problems(queues: Sequence[GroupQueueInfo]) -> Iterator[str]:
    """Queues with a fault; many with the same one are counted."""
    by_fault: dict[tuple[str, str], list[GroupQueueInfo]] = {}
    for queue in queues:
        if queue.fault is not None:
            by_fault.setdefault((queue.topic, queue.fault), []).append(queue)
    for (topic, fault), faulty in by_fault.items():
        if len(faulty) > NAMED_MAX:
            yield f"{topic}: {len(faulty)} queues have {fault}"
            continue
        for queue in faulty:
            owners = f": {', '.join(queue.owners)}" if queue.owners else ""
            yield f"{topic} {queue.broker} queue {queue.queue_id} has {fault}{owners}"
