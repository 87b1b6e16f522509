"""Inspection: connected clients, subscriptions, topics and queue entries; read only."""

from typing import Final

import msgspec

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.delivery import DeliveryServices
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.large_replies import dumped, each_queue, in_slices
from roquet.broker.refusals import system_error
from roquet.broker.replication.replication import Replication
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.broker.tables.clients import language_of
from roquet.broker.tables.offsets import SEPARATOR
from roquet.broker.tables.topics import system_topic_names
from roquet.model.subscription import SQL92
from roquet.net.router import HandlerReply, Peer
from roquet.wire.call import Reply
from roquet.wire.calls.admin import inspection as calls
from roquet.wire.calls.bodies import ClientConnection, TopicList
from roquet.wire.fastjson import codec
from roquet.wire.replication.table_editions import TableEditions, parse_editions

CHANGE_LOOK_MS: Final = 50
"""Ms between two looks for changed tables: a replica has a change within twice that. To be called
at each change would cost every commit of every consumer more than these looks."""

CHANGE_WAIT_MS_MAX: Final = 5_000
"""Longest wait for a change."""

ENTRIES_MAX: Final = 4_096
"""Entries of one reply: half a megabyte of JSON, encoded in about 20 ms."""


class InspectionHandler(BrokerComponent, frozen=True):
    """Lists producers, subscriptions, queue entries and tables."""

    log: MessageLog
    delivery: DeliveryServices
    tables: BrokerTables
    control: ControlPlane
    replication: Replication

    def producers(self, call: calls.GetProducers, _peer: Peer) -> Reply:
        """Return the members of a producer group."""
        members = self.tables.clients.producer_ids(call.producer_group)
        if members is None:
            raise system_error(f"the producer group[{call.producer_group}] not exist")
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

    def all_producers(self, _call: calls.GetAllProducers, _peer: Peer) -> HandlerReply:
        """Return the members of all producer groups."""
        clients = self.tables.clients
        ahead_ms = self.control.clock.now_ms() - self.control.clock.monotonic_ms()

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

    def groups_of_topic(self, call: calls.GetGroupsOfTopic, _peer: Peer) -> Reply:
        """Return the groups that subscribe to a topic or have progress in it."""
        groups = {
            *self.tables.clients.listeners(call.topic),
            *self.tables.offsets.groups_of(call.topic),
        }
        return Reply(body=codec.dumps(calls.GroupList(group_list=sorted(groups))))

    def topics_of_group(self, call: calls.GetTopicsOfGroup, _peer: Peer) -> Reply:
        """Return the topics in which a group has progress."""
        topics = sorted(self.tables.offsets.topics(call.group))
        return Reply(body=codec.dumps(TopicList(topic_list=topics, broker_addr=self.log.address)))

    def subscription(self, call: calls.GetSubscription, _peer: Peer) -> Reply:
        """Return the subscription of an online group to a topic."""
        wish = self.tables.clients.subscription(call.group, call.topic)
        body = calls.SubscriptionAnswer(group=call.group, topic=call.topic, subscription_data=wish)
        return Reply(body=codec.dumps(body))

    def system_topics(self, _call: calls.GetSystemTopics, _peer: Peer) -> Reply:
        """Return the system topics."""
        topics = sorted(system_topic_names(self.control.settings.config))
        return Reply(body=codec.dumps(TopicList(topic_list=topics)))

    def entries(self, call: calls.GetEntries, _peer: Peer) -> Reply:
        """Return at most ENTRIES_MAX entries of a queue from an offset on.

        For an offset outside the queue the reply is a success with a remark, as in the genuine
        broker.
        """
        queue_stats, topic, queue_id = self.log.store.queue_stats, call.topic, call.queue_id
        if not queue_stats.has(topic, queue_id):
            raise system_error(f"{queue_id}@{topic} is not exist!")
        least, end = self.log.store.bounds(topic, queue_id)
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
            filter_data=self._filter_data(call),
            subscription_data=self.tables.clients.subscription(call.consumer_group or "", topic),
        )
        return Reply(body=codec.dumps(answer))

    def _filter_data(self, call: calls.GetEntries) -> str | None:
        """The genuine broker's text for a group's filter: "null" when it filters by tags."""
        if call.consumer_group is None:
            return None
        wish = self.tables.clients.subscription(call.consumer_group, call.topic)
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

    async def all_offsets(self, call: calls.GetAllOffsets, peer: Peer) -> calls.AllOffsetsReply:
        """Return the committed and pulled offsets of all groups; to a replica, what has changed."""
        if call.known_editions is not None:
            answer = await self._changed_offsets(call, peer)
            if self.replication.role.current.is_master:
                return answer
            return msgspec.structs.replace(answer, log_end=None)  # it may be cut from here on
        handled = await in_slices(
            list(self.tables.offsets.by_place()), lambda row: (row[0], dict(row[1]))
        )
        pulled = await in_slices(
            list(self.control.statistics.gets.items()), lambda row: (row[0], dict(row[1].pulled))
        )
        rows = dict(handled)
        self.delivery.checkpoints.lower(rows)
        body = calls.AllOffsets(
            offset_table=rows,
            pull_offset_table={
                f"{topic}{SEPARATOR}{group}": queues for (topic, group), queues in pulled if queues
            },
            data_version=self.tables.offsets.version,
        )
        count = sum(len(queues) for queues in rows.values()) + len(pulled)
        return calls.AllOffsetsReply(body=await dumped(count, body))

    async def _changed_offsets(
        self, call: calls.GetAllOffsets, peer: Peer
    ) -> calls.AllOffsetsReply:
        """Wait for a change of a table that a replica copies, and return the offsets changed since.

        The replica asks for the other tables, whose editions it sees, by their own requests.
        """
        known = parse_editions(call.known_editions or "")
        now = self._editions()
        if known is not None and known.started_ms == now.started_ms:
            with self.tables.change_waiters.place() as is_free:
                if is_free:
                    self._note_copied(call, peer, now)
                    now = await self._wait_for_change(call, known)
                    self.tables.replica_copies.answered(peer, self.control.clock.monotonic_ms())
            rows = self.tables.offsets.changed_since(known.offsets)
        else:
            places = list(self.tables.offsets.by_place())
            rows = dict(await in_slices(places, lambda row: (row[0], dict(row[1]))))
        self.delivery.checkpoints.lower(rows)
        log_end = self.log.store.end_position  # only now: the log must hold what the rows count
        answer = calls.AllOffsets(offset_table=rows, data_version=self.tables.offsets.version)
        count = sum(len(queues) for queues in rows.values())
        body = await dumped(count, answer)
        return calls.AllOffsetsReply(editions=now.text, log_end=log_end, body=body)

    def _note_copied(self, call: calls.GetAllOffsets, peer: Peer, now: TableEditions) -> None:
        copied = parse_editions(call.copied_editions or "")
        if copied is not None and copied.started_ms == now.started_ms:
            self.tables.replica_copies.asks(peer, topics=copied.topics, groups=copied.groups)

    async def _wait_for_change(
        self, call: calls.GetAllOffsets, known: TableEditions
    ) -> TableEditions:
        """The editions once they are others than the replica's, or at its deadline."""
        deadline_ms = self.control.clock.monotonic_ms() + min(
            call.wait_millis or 0, CHANGE_WAIT_MS_MAX
        )
        while (
            (now := self._editions()) == known
            and self.control.clock.monotonic_ms() < deadline_ms
            and not self.log.arrivals.is_closed
        ):
            await self.control.clock.sleep(CHANGE_LOOK_MS)
        return now

    def _editions(self) -> TableEditions:
        tables = self.tables
        return TableEditions(
            started_ms=self.control.statistics.boot_ms,
            topics=tables.topics.edition,
            groups=tables.groups.edition,
            offsets=tables.offsets.edition,
            request_modes=tables.request_modes.edition,
        )

    def delay_offsets(self, _call: calls.GetDelayOffsets, _peer: Peer) -> Reply:
        """Return the progress of each delay level that was used."""
        table = self.delivery.checkpoints.safe_progress().delays
        used = {level: offset for level, offset in table.offset_table.items() if offset}
        return Reply(body=codec.dumps(msgspec.structs.replace(table, offset_table=used)))

    def request_modes(self, _call: calls.GetRequestModes, _peer: Peer) -> Reply:
        """Return the request modes that operators have set."""
        return Reply(body=codec.dumps(self.tables.request_modes.content()))
