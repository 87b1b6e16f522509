"""Groups: members, queue owners, lag and problems of consumer groups; created, changed, deleted.

Brokers are asked, not members: a queue's owners are the members that its broker has seen pulling or
committing, or the one that a broker has decided on. Apache's brokers report no owners.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from roquet.admin.client import AdminClient
from roquet.admin.group_info import (
    BrokerDecision,
    GroupInfo,
    GroupMemberInfo,
    GroupQueueInfo,
    GroupSummary,
)
from roquet.model.errors import CallRefused, UsageError
from roquet.model.names import check_group, is_system_group
from roquet.model.queue import MessageQueue
from roquet.model.settings import suggest
from roquet.model.subscription import ConsumeType, MessageModel
from roquet.model.topic import GroupTable, SubscriptionGroup
from roquet.rules.allocate import BROKER_DECIDED
from roquet.rules.balance.group_consistency import (
    members_by_value,
    ownership_fault,
    unknown_members,
    without_retry_topics,
)
from roquet.wire.calls.admin.group import GetConnections, GetConsumeStats
from roquet.wire.calls.admin.topic import CreateGroup, DeleteGroup, GetGroup, GetGroups
from roquet.wire.calls.bodies import (
    ClientConnection,
    ConsumerConnection,
    ConsumeStats,
    QueueProgress,
    TopicAssignment,
)
from roquet.wire.fastjson import codec

NAMED_MAX: Final = 16
"""Queues of a topic with one fault that are listed one by one; more are only counted."""


class _GroupAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of all brokers about a group, by broker name."""

    name: str
    connections: Mapping[str, ConsumerConnection]
    stats: Mapping[str, ConsumeStats]
    silent: Sequence[str]

    @property
    def members(self) -> dict[str, ClientConnection]:
        """Members by client id; of several answers the one that reports a strategy counts."""
        members: dict[str, ClientConnection] = {}
        for answer in self.connections.values():
            for member in answer.connection_set:
                known = members.get(member.client_id)
                if known is None or known.strategy is None:
                    members[member.client_id] = member
        return dict(sorted(members.items()))

    @property
    def decisions(self) -> list[TopicAssignment]:
        """The decision of each topic; of two brokers' decisions the one with the higher number."""
        latest: dict[str, TopicAssignment] = {}
        for stats in self.stats.values():
            for decision in stats.decisions or ():
                known = latest.get(decision.topic)
                if known is None or known.number < decision.number:
                    latest[decision.topic] = decision
        return [latest[topic] for topic in sorted(latest)]

    @property
    def model(self) -> MessageModel | None:
        """Clustering or broadcasting; None without members."""
        models = [answer.message_model for answer in self.connections.values()]
        return models[0] if models else None

    @property
    def consume_type(self) -> ConsumeType | None:
        """Push, pull or pop; None without members."""
        types = [answer.consume_type for answer in self.connections.values()]
        return types[0] if types else None

    @property
    def owns_queues(self) -> bool:
        """Whether each queue has one owner: not with broadcasting, and not with pop."""
        return self.model in (MessageModel.CLUSTERING, None) and (
            self.consume_type is not ConsumeType.CONSUME_POP
        )


async def show(admin: AdminClient, name: str) -> GroupInfo:
    """Everything about one group. Raises UsageError when no broker knows it."""
    check_group(name)
    brokers = await admin.brokers()
    group = await _ask_brokers(admin, brokers, name)
    if not group.connections and not any(stats.offset_table for stats in group.stats.values()):
        known = await _names(admin, brokers)
        if name not in known:
            hint = suggest(name, known)
            raise UsageError(f"group {name!r} is unknown to every broker{hint}")
    return _info(group, _brokers_disabled(await _tables(admin, brokers), name))


async def show_each(admin: AdminClient) -> AsyncIterator[GroupInfo]:
    """Everything about each group but the system's own, one after another.

    Slower than `summaries`, and never more than a few calls at a time.
    """
    brokers = await admin.brokers()
    tables = await _tables(admin, brokers)
    for name in _names_in(tables):
        if not is_system_group(name):
            group = await _ask_brokers(admin, brokers, name)
            yield _info(group, _brokers_disabled(tables, name))


def _info(group: _GroupAnswers, disabled: list[str]) -> GroupInfo:
    """The answers of all brokers as one; `disabled` are those that let the group not consume."""
    queues = sorted(_queues(group), key=lambda q: (q.topic, q.broker, q.queue_id))
    return GroupInfo(
        name=group.name,
        message_model=group.model.name if group.model else None,
        consume_type=group.consume_type.name if group.consume_type else None,
        lag=sum(queue.lag for queue in queues),
        members=[_member(connection) for connection in group.members.values()],
        queues=queues,
        divisions=[
            BrokerDecision(topic=d.topic, strategy=d.strategy, number=d.number)
            for d in group.decisions
        ],
        disabled_on=disabled,
        problems=[*_disabled(group.name, disabled), *_problems(group), *_queue_problems(queues)],
    )


async def summaries(admin: AdminClient, *, system: bool = False) -> list[GroupSummary]:
    """A summary of every group; system groups only with `system`."""
    brokers = await admin.brokers()
    tables = await _tables(admin, brokers)
    names = [n for n in _names_in(tables) if system or not is_system_group(n)]
    answers = await asyncio.gather(*(_ask_brokers(admin, brokers, name) for name in names))
    return [
        GroupSummary(
            name=one.name,
            members=len(one.members),
            lag=sum(p.lag for stats in one.stats.values() for p in stats.offset_table.values()),
            disabled_on=_brokers_disabled(tables, one.name),
        )
        for one in answers
    ]


async def list_names(admin: AdminClient) -> list[str]:
    """Names of all groups without the system's own."""
    return [n for n in await _names(admin, await admin.brokers()) if not is_system_group(n)]


async def create(admin: AdminClient, name: str, changes: Mapping[str, object]) -> list[str]:
    """Create a group on all brokers, or change it; returns the broker names.

    `changes` maps field names of SubscriptionGroup to values; other fields keep theirs.
    """
    check_group(name)
    brokers = await admin.brokers()
    answers, silent = await admin.ask_each(brokers, GetGroup(group=name))
    for error in silent.values():
        if not isinstance(error, CallRefused):
            raise error
    known = {b: codec.loads(reply.body, SubscriptionGroup) for b, reply in answers.items()}
    defaults = SubscriptionGroup(group_name=name)
    calls = {
        broker: CreateGroup(body=codec.dumps(replace(known.get(broker, defaults), **changes)))
        for broker in brokers
    }
    return await admin.change_each(calls, "made")


async def delete(admin: AdminClient, name: str) -> list[str]:
    """Delete a group and its progress on all brokers; returns the broker names."""
    check_group(name)
    brokers = await admin.brokers()
    call = DeleteGroup(group_name=name, clean_offset=True)
    return await admin.change_each(dict.fromkeys(brokers, call), "deleted")


async def _names(admin: AdminClient, brokers: Mapping[str, str]) -> list[str]:
    return _names_in(await _tables(admin, brokers))


async def _tables(admin: AdminClient, brokers: Mapping[str, str]) -> dict[str, GroupTable]:
    """The group table of each broker that answers."""
    answers, _ = await admin.ask_each(brokers, GetGroups())
    return {broker: codec.loads(reply.body, GroupTable) for broker, reply in answers.items()}


def _names_in(tables: Mapping[str, GroupTable]) -> list[str]:
    return sorted({name for table in tables.values() for name in table.subscription_group_table})


def _brokers_disabled(tables: Mapping[str, GroupTable], name: str) -> list[str]:
    """Brokers on which consumption is disabled for a group."""
    configs = {b: table.subscription_group_table.get(name) for b, table in tables.items()}
    return [b for b, config in configs.items() if config is not None and not config.consume_enable]


def _disabled(name: str, brokers: Sequence[str]) -> Iterator[str]:
    """The problem of a group that is disabled on some brokers: it explains any lag."""
    if brokers:
        yield (
            f"disabled on {', '.join(brokers)}: its members get no messages; "
            f"`roquet group create {name} --enabled` lets them"
        )


async def _ask_brokers(admin: AdminClient, brokers: Mapping[str, str], name: str) -> _GroupAnswers:
    (members, absent), (progress, silent) = await asyncio.gather(
        admin.ask_each(brokers, GetConnections(consumer_group=name, with_wishes=True)),
        admin.ask_each(brokers, GetConsumeStats(consumer_group=name, with_owners=True)),
    )
    mute = [n for n, error in {**absent, **silent}.items() if not isinstance(error, CallRefused)]
    return _GroupAnswers(
        name=name,
        connections={n: codec.loads(r.body, ConsumerConnection) for n, r in members.items()},
        stats={n: codec.loads(r.body, ConsumeStats) for n, r in progress.items()},
        silent=sorted(mute),
    )


def _member(connection: ClientConnection) -> GroupMemberInfo:
    language = connection.language
    return GroupMemberInfo(
        client_id=connection.client_id,
        address=connection.client_addr,
        language=language.name if language is not None else None,
        version=connection.version,
        wishes=connection.wishes,
        strategy=connection.strategy,
    )


def _queues(group: _GroupAnswers) -> Iterator[GroupQueueInfo]:
    decided = {queue: owner for one in group.decisions for queue, owner in one.owners.items()}
    listened = {topic for member in group.members.values() for topic in member.wishes or ()}
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


def _problems(group: _GroupAnswers) -> Iterator[str]:
    """Problems of the members: brokers that differ about them, members that differ in settings."""
    for broker in group.silent:
        yield f"{broker} does not answer: its part is missing here"
    members = group.members
    # A broker that holds none of the group's topics need not know of its members.
    known = {n: [c.client_id for c in a.connection_set] for n, a in group.connections.items()}
    for name, stats in group.stats.items():
        if stats.offset_table:
            known.setdefault(name, [])
    for broker, unknown in unknown_members(members, known).items():
        yield f"{broker} has not heard of {', '.join(unknown)}: members differ about who they are"
    wishes = {m.client_id: m.wishes and without_retry_topics(m.wishes) for m in members.values()}
    yield from _disagreement(
        "members listen to different things",
        [(_subscriptions_text(wish), who) for wish, who in members_by_value(wishes)],
    )
    models = {m.client_id: m.message_model for m in members.values()}
    yield from _disagreement(
        "members disagree whether they share the messages",
        [(model.name, who) for model, who in members_by_value(models)],
    )
    strategies = {m.client_id: m.strategy for m in members.values()}
    if not BROKER_DECIDED.isdisjoint(strategies.values()):
        # Java members do not report a strategy; theirs is certainly none of the broker's.
        strategies = {member: name or "a rule of its own" for member, name in strategies.items()}
    yield from _disagreement("members use different strategies", members_by_value(strategies))


def _disagreement(what: str, variants: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    if len(variants) > 1:
        parts = (f"{wish} ({', '.join(members)})" for wish, members in variants)
        yield f"{what}: {' · '.join(parts)}"


def _subscriptions_text(wishes: Mapping[str, str]) -> str:
    return ", ".join(f"{topic} {wish}" for topic, wish in sorted(wishes.items())) or "nothing"


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
