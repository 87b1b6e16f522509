"""Inspection: connected clients, subscriptions, topics and queue entries; read only."""

from typing import Final

import msgspec

from roquet.broker.control import ControlPlane
from roquet.broker.delivery import DeliveryServices
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.connections import language_of
from roquet.broker.operations.large_replies import dumped, each_queue, in_slices
from roquet.broker.replication.copies.metadata_copy import table_editions
from roquet.broker.replication.replication import Replication
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.broker.tables.offsets import SEPARATOR
from roquet.broker.tables.topics import system_topic_names
from roquet.model.errors import CallRefused
from roquet.model.subscription import SQL92
from roquet.net.router import HandlerReply, Peer
from roquet.wire.call import Reply
from roquet.wire.calls.admin import inspection as calls
from roquet.wire.calls.bodies import ClientConnection, TopicList
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.replication.table_editions import TableEditions, parse_editions

CHANGE_LOOK_MS: Final = 50
"""Ms between two looks for changed tables: a replica has a change within twice that. To be called
at each change would cost every commit of every consumer more than these looks."""

CHANGE_WAIT_MS_MAX: Final = 5_000
"""Longest wait for a change."""

ENTRIES_MAX: Final = 4_096
"""Entries of one reply: half a megabyte of JSON, encoded in about 20 ms."""


def producers(tables: BrokerTables, call: calls.GetProducers, _peer: Peer) -> Reply:
    """Return the members of a producer group."""
    members = tables.clients.producer_ids(call.producer_group)
    if members is None:
        raise CallRefused(
            ResponseCode.SYSTEM_ERROR, f"the producer group[{call.producer_group}] not exist"
        )
    connections = [
        ClientConnection(
            client_id=client_id,
            client_addr=peer.address,
            language=language_of(peer),
            version=peer.version,
        )
        for peer, client_id in members.items()
    ]
    return Reply(body=codec.dumps(calls.ProducerConnection(connection_set=connections)))


def all_producers(
    tables: BrokerTables, control: ControlPlane, _call: calls.GetAllProducers, _peer: Peer
) -> HandlerReply:
    """Return the members of all producer groups."""
    clients = tables.clients
    ahead_ms = control.clock.now_ms() - control.clock.monotonic_ms()

    def members(group: str) -> tuple[str, list[calls.ProducerInfo]]:
        found = [
            calls.ProducerInfo(
                client_id=client_id,
                remote_ip=f"/{peer.address}",
                language=language_of(peer),
                version=peer.version,
                last_update_timestamp=(clients.seen_ms(peer) or -ahead_ms) + ahead_ms,
            )
            for peer, client_id in (clients.producer_ids(group) or {}).items()
        ]
        return group, found

    return each_queue(
        clients.producer_groups(), members, lambda rows: calls.ProducerTable(data=dict(rows))
    )


def groups_of_topic(tables: BrokerTables, call: calls.GetGroupsOfTopic, _peer: Peer) -> Reply:
    """Return the groups that subscribe to a topic or have progress in it."""
    groups = {*tables.clients.listeners(call.topic), *tables.offsets.groups_of(call.topic)}
    return Reply(body=codec.dumps(calls.GroupList(group_list=sorted(groups))))


def topics_of_group(
    message_log: MessageLog, tables: BrokerTables, call: calls.GetTopicsOfGroup, _peer: Peer
) -> Reply:
    """Return the topics in which a group has progress."""
    topics = sorted(tables.offsets.topics(call.group))
    return Reply(body=codec.dumps(TopicList(topic_list=topics, broker_addr=message_log.address)))


def subscription(tables: BrokerTables, call: calls.GetSubscription, _peer: Peer) -> Reply:
    """Return the subscription of an online group to a topic."""
    wish = tables.clients.subscription(call.group, call.topic)
    answer = calls.SubscriptionAnswer(group=call.group, topic=call.topic, subscription_data=wish)
    return Reply(body=codec.dumps(answer))


def system_topics(control: ControlPlane, _call: calls.GetSystemTopics, _peer: Peer) -> Reply:
    """Return the system topics."""
    topics = sorted(system_topic_names(control.settings.config))
    return Reply(body=codec.dumps(TopicList(topic_list=topics)))


def entries(
    message_log: MessageLog, tables: BrokerTables, call: calls.GetEntries, _peer: Peer
) -> Reply:
    """Return at most ENTRIES_MAX entries of a queue from an offset on.

    For an offset outside the queue the reply is a success with a remark, as in the genuine broker.
    """
    queue_stats, topic, queue_id = message_log.store.queue_stats, call.topic, call.queue_id
    if not queue_stats.has(topic, queue_id):
        raise CallRefused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
    least, end = message_log.store.bounds(topic, queue_id)
    if not least <= call.index < end:
        return Reply(remark=f"Index {call.index} of {queue_id}@{topic} is not exist!")
    count = min(max(call.count, 0), ENTRIES_MAX)
    rows = queue_stats.entries(topic, queue_id, call.index, count)
    answer = calls.QueueEntries(
        min_queue_index=least,
        max_queue_index=end,
        queue_data=[
            calls.QueueEntry(physic_offset=position, physic_size=size, tags_code=code)
            for position, size, code in rows
        ],
        filter_data=_filter_data(tables, call),
        subscription_data=tables.clients.subscription(call.consumer_group or "", topic),
    )
    return Reply(body=codec.dumps(answer))


def _filter_data(tables: BrokerTables, call: calls.GetEntries) -> str | None:
    """The genuine broker's text for a group's filter: "null" when it filters by tags."""
    if call.consumer_group is None:
        return None
    wish = tables.clients.subscription(call.consumer_group, call.topic)
    if wish is None:
        return f"{call.consumer_group}@{call.topic} is not online!"
    if wish.expression_type != SQL92:
        return "null"
    filter_data = {
        "clientVersion": wish.sub_version,
        "consumerGroup": call.consumer_group,
        "dead": False,
        "expression": wish.sub_string,
        "expressionType": wish.expression_type,
        "topic": call.topic,
    }
    return codec.dumps(filter_data, pretty=True).decode()


async def all_offsets(
    message_log: MessageLog,
    delivery: DeliveryServices,
    tables: BrokerTables,
    control: ControlPlane,
    replication: Replication,
    call: calls.GetAllOffsets,
    peer: Peer,
) -> calls.AllOffsetsReply:
    """Return the committed and pulled offsets of all groups; a replica is told what has changed."""
    if call.known_editions is not None:
        answer = await _changed_offsets(message_log, delivery, tables, control, call, peer)
        if replication.role.current.is_master:
            return answer
        return msgspec.structs.replace(answer, log_end=None)  # it may be cut from here on
    handled = await in_slices(list(tables.offsets.by_place()), lambda row: (row[0], dict(row[1])))
    pulled = await in_slices(
        list(control.statistics.gets.items()), lambda row: (row[0], dict(row[1].pulled))
    )
    rows = dict(handled)
    delivery.checkpoints.lower(rows)
    body = calls.AllOffsets(
        offset_table=rows,
        pull_offset_table={
            f"{topic}{SEPARATOR}{group}": queues for (topic, group), queues in pulled if queues
        },
        data_version=tables.offsets.version,
    )
    count = sum(len(queues) for queues in rows.values()) + len(pulled)
    return calls.AllOffsetsReply(body=await dumped(count, body))


async def _changed_offsets(
    message_log: MessageLog,
    delivery: DeliveryServices,
    tables: BrokerTables,
    control: ControlPlane,
    call: calls.GetAllOffsets,
    peer: Peer,
) -> calls.AllOffsetsReply:
    """Wait for a change of a table that a replica copies, and return the offsets changed since.

    The replica asks for the other tables, whose editions it sees, by their own requests.
    """
    known = parse_editions(call.known_editions or "")
    now = _editions(tables, control)
    if known is not None and known.started_ms == now.started_ms:
        with tables.change_waiters.place() as is_free:
            if is_free:
                _note_copied(tables, call, peer, now)
                now = await _wait_for_change(message_log, tables, control, call, known)
                tables.replica_copies.answered(peer, control.clock.monotonic_ms())
        rows = tables.offsets.changed_since(known.offsets)
    else:
        places = list(tables.offsets.by_place())
        rows = dict(await in_slices(places, lambda row: (row[0], dict(row[1]))))
    delivery.checkpoints.lower(rows)
    log_end = message_log.store.end_position  # only now: the log must hold what the rows count
    answer = calls.AllOffsets(offset_table=rows, data_version=tables.offsets.version)
    count = sum(len(queues) for queues in rows.values())
    body = await dumped(count, answer)
    return calls.AllOffsetsReply(editions=now.text, log_end=log_end, body=body)


def _note_copied(
    tables: BrokerTables, call: calls.GetAllOffsets, peer: Peer, now: TableEditions
) -> None:
    """Note what a replica has copied, if it says so."""
    copied = parse_editions(call.copied_editions or "")
    if copied is not None and copied.started_ms == now.started_ms:
        tables.replica_copies.asks(peer, topics=copied.topics, groups=copied.groups)


async def _wait_for_change(
    message_log: MessageLog,
    tables: BrokerTables,
    control: ControlPlane,
    call: calls.GetAllOffsets,
    known: TableEditions,
) -> TableEditions:
    """The editions once they are others than the replica's, or at its deadline."""
    deadline_ms = control.clock.monotonic_ms() + min(call.wait_millis or 0, CHANGE_WAIT_MS_MAX)
    while (
        (now := _editions(tables, control)) == known
        and control.clock.monotonic_ms() < deadline_ms
        and not message_log.arrivals.is_closed
    ):
        await control.clock.sleep(CHANGE_LOOK_MS)
    return now


def _editions(tables: BrokerTables, control: ControlPlane) -> TableEditions:
    return table_editions(tables, control.statistics.boot_ms)


def delay_offsets(delivery: DeliveryServices, _call: calls.GetDelayOffsets, _peer: Peer) -> Reply:
    """Return the progress of each delay level that was used."""
    table = delivery.checkpoints.safe_progress().delays
    used = {level: offset for level, offset in table.offset_table.items() if offset}
    return Reply(body=codec.dumps(msgspec.structs.replace(table, offset_table=used)))


def request_modes(tables: BrokerTables, _call: calls.GetRequestModes, _peer: Peer) -> Reply:
    """Return the request modes that operators have set."""
    return Reply(body=codec.dumps(tables.request_modes.content()))
