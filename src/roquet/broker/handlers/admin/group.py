"""Group: the members, progress and queue owners of a consumer group."""

from collections import ChainMap
from collections.abc import Awaitable, Sequence

import msgspec

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.coordination import GroupCoordination
from roquet.broker.operations.large_replies import check_queues, each_queue, written
from roquet.broker.operations.progress import BrokerProgress
from roquet.broker.operations.proxied_members import ProxiedMembers
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.broker.tables.clients import ConsumerGroup, GroupMember, language_of
from roquet.model.errors import CallRefused
from roquet.model.queue import MessageQueue
from roquet.net.router import HandlerReply, Peer
from roquet.wire.call import Reply
from roquet.wire.calls.admin.group import GetConnections, GetConsumeStats
from roquet.wire.calls.bodies import (
    POP,
    ClientConnection,
    ConsumerConnection,
    ConsumeStats,
    QueueProgress,
    TopicAssignment,
)
from roquet.wire.codes import ResponseCode


class GroupHandler(BrokerComponent, frozen=True):
    """Reports the members and the progress of groups."""

    tables: BrokerTables
    coordination: GroupCoordination
    control: ControlPlane
    progress: BrokerProgress
    proxied: ProxiedMembers

    def connections(self, call: GetConnections, _peer: Peer) -> HandlerReply:
        """Return the members of a group, with those that are connected to proxies."""
        if self.proxied.proxies(call.consumer_group):
            return self._with_proxied(call)
        return _reply(call.consumer_group, self._registered(call))

    async def _with_proxied(self, call: GetConnections) -> Reply:
        proxied = await self.proxied.ask(call)
        reply = _reply(call.consumer_group, [*self._registered(call), *proxied.values()])
        return reply if isinstance(reply, Reply) else await reply

    def _registered(self, call: GetConnections) -> list[ConsumerConnection]:
        """The members that have sent heartbeats; empty without any."""
        name = call.consumer_group
        group = self.tables.clients.consumers(name)
        if group is None:
            return []
        assignments = self.coordination.rebalance.assignments
        strategies = assignments.strategies(name) if call.with_subscriptions else {}
        members = [
            _connection(
                member,
                strategies.get(member.client_id),
                with_subscriptions=bool(call.with_subscriptions),
            )
            for member in group.members.values()
        ]
        return [
            ConsumerConnection(
                connection_set=members,
                subscription_table=dict(group.subscriptions),
                consume_type=group.consume_type,
                message_model=group.message_model,
                consume_from_where=group.consume_from_where,
            )
        ]

    def stats(self, call: GetConsumeStats, _peer: Peer) -> HandlerReply:
        """Return a group's progress in its queues on this broker, and its rate."""
        group = call.consumer_group
        topics = self._topics(call, self.tables.clients.consumers(group))
        counts = {topic: self._queue_count(topic) for topic in topics}
        check_queues(sum(counts.values()))
        queues = [
            MessageQueue(topic, self.control.settings.config.broker_name, number)
            for topic, count in counts.items()
            for number in range(count)
        ]
        tps = sum((self.control.statistics.consume_tps(topic, group) for topic in topics), 0.0)
        decisions = self._decisions(group) if call.with_owners else None
        return each_queue(
            queues,
            lambda queue: self._queue_progress(call, queue.topic, queue.queue_id),
            lambda progress: ConsumeStats(
                offset_table=dict(zip(queues, progress, strict=True)),
                consume_tps=tps,
                decisions=decisions,
            ),
        )

    def _topics(self, call: GetConsumeStats, members: ConsumerGroup | None) -> list[str]:
        """The requested topics, else those in which the group has progress.

        Topics that an online group no longer subscribes to are left out, as in the genuine broker.
        Our own commands also get topics that it subscribes to without progress.
        """
        wanted = {topic for topic in (call.topic or call.topic_list or "").split(";") if topic}
        topics = wanted or set(self.tables.offsets.topics(call.consumer_group))
        if members is not None and members.subscriptions:
            topics = {
                t for t in topics if not self.progress.has_unsubscribed(call.consumer_group, t)
            }
            if call.with_owners and not wanted:
                topics.update(members.subscriptions)
        return sorted(topics)

    def _queue_count(self, topic: str) -> int:
        config = self.tables.topics.get(topic)
        return config.read_queue_nums if config else 0

    def _queue_progress(self, call: GetConsumeStats, topic: str, number: int) -> QueueProgress:
        group = call.consumer_group
        progress = self.progress.of_queue(group, topic, number)
        if not call.with_owners:
            return progress
        return msgspec.structs.replace(progress, owners=self._owners(group, topic, number))

    def _owners(self, group: str, topic: str, number: int) -> list[str] | None:
        """The active members of a queue; None for a group that pops."""
        if self.coordination.request_mode(topic, group).mode == POP:
            return None
        return self.coordination.handover.owners(group, topic, number)

    def _decisions(self, group: str) -> list[TopicAssignment]:
        snapshots = self.coordination.rebalance.assignments.of(group)
        return [
            TopicAssignment(topic=topic, strategy=s.strategy, number=s.number, owners=s.owners)
            for topic, s in snapshots.items()
        ]


def _reply(name: str, answers: Sequence[ConsumerConnection]) -> Reply | Awaitable[Reply]:
    """One reply of several answers: the settings of the first count. CallRefused without any."""
    if not answers:
        raise CallRefused(
            ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
        )
    members = [member for answer in answers for member in answer.connection_set]
    subscriptions = dict(ChainMap(*(answer.subscription_table for answer in answers)))
    body = msgspec.structs.replace(
        answers[0],
        connection_set=sorted(members, key=lambda member: member.client_id),
        subscription_table=subscriptions,
    )
    rows = len(members) + len(subscriptions)
    rows += sum(len(member.subscriptions or ()) for member in members)
    return written(rows, body, lambda data: Reply(body=data))


def _connection(
    member: GroupMember, requested_strategy: str | None, *, with_subscriptions: bool
) -> ClientConnection:
    peer = member.peer
    return ClientConnection(
        client_id=member.client_id,
        client_addr=peer.address,
        language=language_of(peer),
        version=peer.version,
        subscriptions=dict(member.wishes) if with_subscriptions else None,
        message_model=member.message_model if with_subscriptions else None,
        consume_type=member.consume_type if with_subscriptions else None,
        strategy=(member.strategy or requested_strategy) if with_subscriptions else None,
    )
