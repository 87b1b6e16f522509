"""Topic: creates, deletes and lists topics and consumer groups."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.coordination import GroupCoordination
from roquet.broker.ingest.destination import QUEUES_MAX
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.large_replies import page, written
from roquet.broker.operations.progress import BrokerProgress
from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.broker.refusals import invalid_parameter, no_group, no_topic, system_error
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.broker.tables.groups import Groups
from roquet.broker.tables.saved_table import TableChange
from roquet.broker.tables.topics import is_system_topic
from roquet.model import names
from roquet.model.errors import CallRefused, UsageError
from roquet.model.topic import SubscriptionGroup, TopicConfig
from roquet.net.router import HandlerReply, Peer
from roquet.rules import topic_attributes
from roquet.rules.consumption.priority import check_attribute
from roquet.wire.call import Reply
from roquet.wire.calls.admin import topic as calls
from roquet.wire.calls.admin.topic import ForbidGroup
from roquet.wire.calls.bodies import (
    GroupForbidden,
    SubscriptionGroups,
    TopicConfigs,
    TopicsOfBroker,
)
from roquet.wire.codes import Language
from roquet.wire.fastjson import codec
from roquet.wire.request_body import decode_body

FILTER_TYPES: Final = frozenset({"SINGLE_TAG", "MULTI_TAG"})


class TopicHandler(BrokerComponent, frozen=True):
    """Creates, deletes and lists topics and groups."""

    log: MessageLog
    tables: BrokerTables
    coordination: GroupCoordination
    control: ControlPlane
    progress: BrokerProgress
    deletion: TopicDeletion

    async def create_topic(self, call: calls.CreateTopic, _peer: Peer) -> Reply:
        """Create or change a topic; replicas and name servers know it before the reply."""
        if call.topic_filter_type not in FILTER_TYPES:  # refused where Java reads the header
            fault = f"topicFilterType = [{call.topic_filter_type}] value invalid"
            raise system_error(fault)
        made = TopicConfig(
            topic_name=call.topic,
            read_queue_nums=call.read_queue_nums,
            write_queue_nums=call.write_queue_nums,
            perm=call.perm,
            topic_filter_type=call.topic_filter_type,
            topic_sys_flag=call.topic_sys_flag or 0,
            order=call.order,
        )
        try:
            changes = topic_attributes.parse_changes(call.attributes or "")
        except UsageError as error:
            raise _invalid(str(error)) from error
        return await self._put(lambda: [self._checked(made, changes)])

    async def create_topics(self, call: calls.CreateTopics, _peer: Peer) -> Reply:
        """Create topics or change their settings: all of them or none."""
        made = decode_body(call.body, TopicConfigs).topic_config_list
        return await self._put(lambda: [self._checked(one, _signed(one)) for one in made])

    async def _put(self, checked: Callable[[], list[TopicConfig]]) -> Reply:
        """Store settings of topics, which are checked when no other change is under way."""
        topics = self.tables.topics
        await topics.change(lambda: topics.begin_put(checked(), self.control.clock.now_ms()))
        await self._topics_copied()
        await self.control.registration.wait_registered()
        return Reply()

    async def _topics_copied(self) -> None:
        topics = self.tables.topics
        await self.tables.replica_copies.reach(self.control.clock, topics=topics.edition)

    async def delete_topic(self, call: calls.DeleteTopic, _peer: Peer) -> Reply:
        """Delete a topic with its messages, its groups' progress and its POP retry topics."""
        if not call.topic or call.topic.isspace():
            raise _invalid("The specified topic is blank.")
        self._check_topic(call.topic)
        await self.log.flush.step()  # most of the log is on the disk: the next steps are quick
        self.deletion.delete_with_retries(call.topic)
        await self.deletion.clear_removed()
        await self._topics_copied()
        return Reply()

    def topics(self, call: calls.GetTopics, _peer: Peer) -> HandlerReply:
        """Return all topics of this broker, or a page of them.

        With the ids of topics, and with the first page the deleted ones: a replica follows both.
        """
        table = self.tables.topics.content()
        version, configs = table.data_version, table.topic_config_table
        some = page(configs, version, call.topic_seq, call.max_topic_num, call.data_version)
        ids, is_first = self.tables.topics.ids, some.keys() >= set(sorted(configs)[:1])
        body = TopicsOfBroker(
            topic_config_table=some,
            data_version=version,
            topic_ids={name: ids[name] for name in some if name in ids},
            deleted_topics=dict(self.log.store.deleted_topics) if is_first else None,
        )
        count = len(configs)
        return written(
            len(some), body, lambda data: calls.TopicsReply(total_topic_num=count, body=data)
        )

    def topic(self, call: calls.GetTopic, _peer: Peer) -> Reply:
        """One topic's settings."""
        config = self.tables.topics.get(call.topic)
        if config is None:
            fault = f"No topic in this broker. topic: {call.topic}"
            raise no_topic(fault)
        return Reply(body=codec.dumps(config))

    async def create_group(self, call: calls.CreateGroup, _peer: Peer) -> Reply:
        """Create a consumer group or change its settings."""
        made = decode_body(call.body, SubscriptionGroup)
        return await self._put_groups([made])

    async def create_groups(self, call: calls.CreateGroups, _peer: Peer) -> Reply:
        """Create consumer groups or change their settings: all of them or none."""
        return await self._put_groups(decode_body(call.body, SubscriptionGroups).group_config_list)

    async def _put_groups(self, made: Sequence[SubscriptionGroup]) -> Reply:
        """Store settings of groups, which are checked when no other change is under way."""
        await self._change_groups(
            lambda groups, now_ms: groups.begin_put([self._checked_group(g) for g in made], now_ms)
        )
        return await self._groups_copied()

    async def _change_groups(self, begin: Callable[[Groups, int], TableChange]) -> None:
        groups, now_ms = self.tables.groups, self.control.clock.now_ms
        await groups.change(lambda: begin(groups, now_ms()))

    async def _groups_copied(self) -> Reply:
        """Wait until replicas know the groups; a plain success."""
        groups = self.tables.groups
        await self.tables.replica_copies.reach(self.control.clock, groups=groups.edition)
        return Reply()

    async def delete_group(self, call: calls.DeleteGroup, _peer: Peer) -> Reply:
        """Delete a consumer group, and its progress if requested."""
        if names.is_system_group(call.group_name):
            raise _invalid(f"the group {call.group_name} belongs to the system")
        await self._change_groups(
            lambda groups, now_ms: groups.begin_remove(call.group_name, now_ms)
        )
        self.tables.ordered_pops.forget(group=call.group_name)
        self.tables.offset_resets.forget(group=call.group_name)
        self.control.statistics.forget(group=call.group_name)
        self.log.counts.forget(group=call.group_name)
        self.coordination.rebalances.forget(lambda labels: labels[0] == call.group_name)
        if call.clean_offset:
            self.tables.offsets.remove_group(call.group_name)
            await self.progress.save_in_threads()
        return await self._groups_copied()

    async def forbid_group(self, call: ForbidGroup, _peer: Peer) -> Reply:
        """Forbid or allow a group to read a topic; returns the current state."""
        group, topic = call.group, call.topic
        if (readable := call.readable) is not None:
            await self._change_groups(
                lambda groups, now_ms: groups.begin_forbid(group, topic, now_ms, readable=readable)
            )
            if not readable:
                self.log.arrivals.look_again([topic])
        may_read = self.tables.groups.may_read(group, topic)
        body = GroupForbidden(group=group, topic=topic, readable=may_read)
        return Reply(remark="", body=codec.dumps(body))

    def groups(self, call: calls.GetGroups, _peer: Peer) -> HandlerReply:
        """Return all consumer groups of this broker, or a page of them."""
        table = self.tables.groups.content()
        version, configs = table.data_version, table.subscription_group_table
        some = page(configs, version, call.group_seq, call.max_group_num, call.data_version)
        body = msgspec.structs.replace(table, subscription_group_table=some)
        count = len(configs)
        return written(
            len(some), body, lambda data: calls.GroupsReply(total_group_num=count, body=data)
        )

    def group(self, call: calls.GetGroup, peer: Peer) -> Reply:
        """Return one consumer group's settings.

        For a group that its first consumer would create, clients in other languages get the
        defaults, as from a genuine broker, which creates it at this request. Ours ask whether it
        exists.
        """
        config = self.tables.groups.get(call.group)
        if config is None and peer.language != Language.PYTHON:
            config = self.tables.groups.default(call.group)
        if config is None:
            fault = f"No group in this broker. group: {call.group}"
            raise no_group(fault)
        return Reply(body=codec.dumps(config))

    def _check_topic(self, topic: str) -> None:
        if fault := names.topic_remark(topic):
            raise _invalid(fault)
        if is_system_topic(topic, self.control.settings.config):
            raise _invalid(f"The topic[{topic}] is conflict with system topic.")

    def _checked(self, topic: TopicConfig, changes: Mapping[str, str]) -> TopicConfig:
        """The settings that a topic gets. CallRefused for illegal ones."""
        name, known = topic.topic_name, self.tables.topics.get(topic.topic_name)
        self._check_topic(name)
        if name in (names.RETRY_PREFIX, names.DLQ_PREFIX):
            raise _invalid(f"the topic name {name} lacks its group")
        reads, writes = topic.read_queue_nums, topic.write_queue_nums
        if not (0 <= reads <= QUEUES_MAX and 0 <= writes <= QUEUES_MAX and 0 <= topic.perm <= 15):
            raise _invalid(
                f"topic {name}: {reads} read queues, {writes} write queues and permission "
                f"{topic.perm} cannot be; {QUEUES_MAX} queues are allowed"
            )
        if topic.topic_filter_type not in FILTER_TYPES:
            raise _invalid(f"topic {name}: no filter type {topic.topic_filter_type!r}")
        present = known.attributes if known else None
        try:
            attributes = topic_attributes.apply_changes(present, changes)
        except UsageError as error:
            raise _invalid(str(error)) from error
        return msgspec.structs.replace(topic, attributes=attributes)

    def _checked_group(self, group: SubscriptionGroup) -> SubscriptionGroup:
        """The settings that a group gets; attributes change its present ones.

        CallRefused for an illegal name or attribute.
        """
        if fault := names.group_fault(group.group_name):
            raise _invalid(fault)
        known = self.tables.groups.get(group.group_name)
        attributes = dict(known.attributes) if known else {}
        for key, value in group.attributes.items():
            if key.startswith("-"):
                attributes.pop(key[1:], None)
                continue
            attributes[name := key.removeprefix("+")] = value
            try:
                check_attribute(name, value)
            except UsageError as error:
                raise _invalid(str(error)) from error
        return msgspec.structs.replace(group, attributes=attributes)


def _signed(topic: TopicConfig) -> dict[str, str]:
    """A topic's attributes as changes: those without a sign are added."""
    return {k if k[:1] in ("+", "-") else f"+{k}": v for k, v in topic.attributes.items()}


def _invalid(remark: str) -> CallRefused:
    return invalid_parameter(remark)
