"""A group's members, its progress and who works on which queue."""

from collections.abc import Iterator

import msgspec

from roquet.broker.broker import Broker
from roquet.broker.handlers.inspection import language_of
from roquet.broker.handlers.paging import check_queues, each_queue, written
from roquet.broker.tables.clients import ConsumerGroup, GroupMember
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


def connections(broker: Broker, call: GetConnections, _peer: Peer) -> HandlerReply:
    """The members of a group."""
    name = call.consumer_group
    group = broker.clients.consumers(name)
    if group is None:
        raise CallRefused(
            ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
        )
    strategies = broker.assigning.table.strategies(name) if call.with_wishes else {}
    found = [
        _connection(member, strategies.get(member.client_id), with_wishes=bool(call.with_wishes))
        for member in group.members.values()
    ]
    body = ConsumerConnection(
        connection_set=sorted(found, key=lambda connection: connection.client_id),
        subscription_table=dict(group.subscriptions),
        consume_type=group.consume_type,
        message_model=group.message_model,
        consume_from_where=group.consume_from_where,
    )
    rows = len(found) + len(group.subscriptions)
    if call.with_wishes:
        rows += sum(len(member.wishes) for member in group.members.values())
    return written(rows, body, lambda data: Reply(body=data))


def stats(broker: Broker, call: GetConsumeStats, _peer: Peer) -> HandlerReply:
    """A group's progress in all its queues here, and how quickly it gets on."""
    group = call.consumer_group
    topics = _topics(broker, call, broker.clients.consumers(group))
    counts = {topic: _queue_count(broker, topic) for topic in topics}
    check_queues(sum(counts.values()))
    queues = [
        MessageQueue(topic, broker.config.broker_name, number)
        for topic, count in counts.items()
        for number in range(count)
    ]
    tps = sum((broker.statistics.consume_tps(topic, group) for topic in topics), 0.0)
    decisions = _decisions(broker, group) if call.with_owners else None
    return each_queue(
        queues,
        lambda queue: _progress(broker, call, queue.topic, queue.queue_id),
        lambda found: ConsumeStats(
            offset_table=dict(zip(queues, found, strict=True)),
            consume_tps=tps,
            decisions=decisions,
        ),
    )


def progress(broker: Broker, group: str, topic: str, number: int) -> QueueProgress:
    """How far a queue is, and a group in it: with what it has handled, with what it was given."""
    store = broker.store
    committed = max(broker.offsets.get(group, topic, number) or 0, 0)
    least, most = store.bounds(topic, number)
    last_ms = 0
    if least < committed <= most:
        last_ms = max(store.store_time_at(topic, number, committed - 1), 0)
    return QueueProgress(
        broker_offset=most,
        consumer_offset=committed,
        pull_offset=max(committed, broker.statistics.pulled(topic, group, number)),
        last_timestamp=last_ms,
    )


def has_left(broker: Broker, group: str, topic: str) -> bool:
    """Whether a group that is online listens to other topics, and not to this one any more."""
    members = broker.clients.consumers(group)
    return bool(members and members.subscriptions and topic not in members.subscriptions)


def _connection(member: GroupMember, asked: str | None, *, with_wishes: bool) -> ClientConnection:
    peer = member.peer
    return ClientConnection(
        client_id=member.client_id,
        client_addr=peer.address,
        language=language_of(peer),
        version=peer.version,
        wishes=dict(member.wishes) if with_wishes else None,
        message_model=member.message_model if with_wishes else None,
        strategy=(member.strategy or asked) if with_wishes else None,
    )


def _topics(broker: Broker, call: GetConsumeStats, members: ConsumerGroup | None) -> list[str]:
    """Those that are asked for, else those of which the group has progress.

    The topics that a live group does not listen to any more are left out, as the genuine broker
    does; what it listens to, but has not begun, is told to our own commands.
    """
    wanted = {topic for topic in (call.topic or call.topic_list or "").split(";") if topic}
    found = wanted or set(broker.offsets.topics(call.consumer_group))
    if members is not None and members.subscriptions:
        found = {t for t in found if not has_left(broker, call.consumer_group, t)}
        if call.with_owners and not wanted:
            found.update(members.subscriptions)
    return sorted(found)


def _queue_count(broker: Broker, topic: str) -> int:
    config = broker.topics.get(topic)
    return config.read_queue_nums if config else 0


def _progress(broker: Broker, call: GetConsumeStats, topic: str, number: int) -> QueueProgress:
    group = call.consumer_group
    found = progress(broker, group, topic, number)
    if not call.with_owners:
        return found
    return msgspec.structs.replace(found, owners=_owners(broker, group, topic, number))


def _owners(broker: Broker, group: str, topic: str, number: int) -> list[str] | None:
    """Who works on a queue; None where several may, since they pop."""
    if broker.mode(topic, group).mode == POP:
        return None
    return broker.handover.owners(group, topic, number)


def _decisions(broker: Broker, group: str) -> list[TopicAssignment]:
    def each() -> Iterator[TopicAssignment]:
        for topic, snapshot in broker.assigning.table.of(group).items():
            yield TopicAssignment(
                topic=topic,
                strategy=snapshot.strategy,
                number=snapshot.number,
                owners=snapshot.owners,
            )

    return list(each())
