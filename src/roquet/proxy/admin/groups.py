"""Groups for operators: members, subscriptions, progress and resets."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from roquet.admin import offset_reset
from roquet.admin.client import AdminClient, check_some_replied, leader_addresses, without_answers
from roquet.model.names import check_group, is_retry
from roquet.model.subscription import SQL92, MessageModel
from roquet.net.address import host_of
from roquet.proxy.clients import ClientTable
from roquet.proxy.handlers.members import connection_of, subscriptions
from roquet.proxy.messages import millis, to_queue
from roquet.proxy.protos import admin_pb2 as admin
from roquet.proxy.protos import definition_pb2 as pb
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.wire.calls.admin.group import GetConnections, GetConsumeStats
from roquet.wire.calls.admin.inspection import GetGroupsOfTopic, GroupList
from roquet.wire.calls.admin.stats import GetTimeSpan, TimeSpans
from roquet.wire.calls.bodies import (
    ClientConnection,
    ConsumerConnection,
    ConsumeStats,
    QueueProgress,
)
from roquet.wire.codes import ResponseCode, release_of
from roquet.wire.fastjson import codec

Accumulation = admin.DescribeGroupAccumulationResponse.GroupAccumulation

GROUPS_MAX: Final = 64
"""Groups of a topic that one request describes: each takes calls to every broker."""


class OnlineGroup(msgspec.Struct, frozen=True):
    """The members of a group, and what they listen to."""

    name: str
    members: Sequence[ClientConnection]
    kinds: Mapping[str, str]
    """Kinds of filters, TAG or SQL92, by topic."""

    def filters(self, member: ClientConnection, topic: str) -> Iterable[tuple[str, str]]:
        """Topics and filters of a member, without its retry topic; of one topic if it is named."""
        for name, text in sorted((member.subscriptions or {}).items()):
            if topic in ("", name) and not is_retry(name):
                yield name, text

    def subscription(self, topic: str, text: str) -> admin.SubscriptionInfo:
        """The subscription to a topic by a filter that a member has."""
        texts = {(member.subscriptions or {}).get(topic) for member in self.members}
        kind = pb.SQL if self.kinds.get(topic) == SQL92 else pb.TAG
        return admin.SubscriptionInfo(
            group=pb.Resource(name=self.name),
            topic=pb.Resource(name=topic),
            expression=pb.FilterExpression(type=kind, expression=text),
            online=True,
            message_model=_model(self.members[0]),
            subscription_consistency=len(texts) == 1,
        )


class GroupsAdmin:
    """Answers operators' requests about groups."""

    __slots__ = ("_admin", "_clients")

    def __init__(self, client: AdminClient, clients: ClientTable) -> None:
        self._admin = client
        self._clients = clients

    async def list_subscriptions(
        self, request: admin.ListSubscriptionRequest
    ) -> admin.ListSubscriptionResponse:
        """Return the subscriptions of groups, with an entry for each filter of a topic."""
        groups = await self._groups(request.group.name, request.topic.name)
        found = {
            (group.name, topic, text): group.subscription(topic, text)
            for group in groups
            for member in group.members
            for topic, text in group.filters(member, request.topic.name)
        }
        return admin.ListSubscriptionResponse(subscription_info=found.values())

    async def describe_subscriptions(
        self, request: admin.DescribeSubscriptionRequest
    ) -> admin.DescribeSubscriptionResponse:
        """Return the subscriptions of each member of groups."""
        answer = admin.DescribeSubscriptionResponse()
        for group in await self._groups(request.group.name, request.topic.name):
            for member in group.members:
                for topic, text in group.filters(member, request.topic.name):
                    answer.client_subscription_info.add(
                        client_info=_client(member),
                        subscription_info=group.subscription(topic, text),
                    )
        return answer

    async def delete_subscription(
        self, request: admin.DeleteSubscriptionRequest
    ) -> admin.DeleteSubscriptionResponse:
        """Refuse, as Apache's proxy: subscriptions are what members say, and nobody stores them."""
        group = request.group.name
        raise ProxyRefusal(
            StatusCode.NOT_FOUND,
            "no subscription is stored: one ends when its members do; "
            f"`roquet group delete {group:.200}` deletes the group and its progress",
        )

    async def list_connections(
        self, request: admin.ListConsumerConnectionRequest
    ) -> admin.ListConsumerConnectionResponse:
        """The members of a group, or those that listen to a topic."""
        group, topic = await self._online(check_group(request.group.name)), request.topic.name
        found = [
            _client(one) for one in group.members if not topic or any(group.filters(one, topic))
        ]
        return admin.ListConsumerConnectionResponse(client_info=found)

    async def describe_accumulation(
        self, request: admin.DescribeGroupAccumulationRequest
    ) -> admin.DescribeGroupAccumulationResponse:
        """How many messages a group has before it, by topic."""
        call = GetConsumeStats(consumer_group=check_group(request.group.name))
        answers, failed = await self._admin.ask_each(await self._admin.brokers(), call)
        check_some_replied(answers, failed)
        wanted = {topic.name for topic in request.topics}
        by_topic: dict[str, list[QueueProgress]] = {}
        for reply in answers.values():
            for queue, progress in codec.loads(reply.body, ConsumeStats).offset_table.items():
                if not wanted or queue.topic in wanted:
                    by_topic.setdefault(queue.topic, []).append(progress)
        return admin.DescribeGroupAccumulationResponse(
            accumulation=_sum(one for each in by_topic.values() for one in each),
            topic_accumulation={topic: _sum(each) for topic, each in by_topic.items()},
        )

    async def query_time_span(
        self, request: admin.QueryTimeSpanRequest
    ) -> admin.QueryTimeSpanResponse:
        """The times of the messages in a group's queues, and of the last one that it handled."""
        group = check_group(request.group.name)
        answer = admin.QueryTimeSpanResponse()
        for topic in request.topics:
            route = await self._admin.known_route(topic.name)
            call = GetTimeSpan(topic=topic.name, group=group)
            brokers = leader_addresses(route.broker_datas)
            found, failed = await self._admin.ask_each(brokers, call)
            check_some_replied(found, failed)
            for reply in found.values():
                for span in codec.loads(reply.body, TimeSpans).consume_time_span_set:
                    answer.queue_time_span_list.add(
                        message_queue=to_queue(span.message_queue),
                        min_timestamp=span.min_time_stamp,
                        max_timestamp=span.max_time_stamp,
                        consume_timestamp=span.consume_time_stamp,
                        delay_time_ms=span.delay_time,
                    )
        return answer

    async def reset(self, request: admin.ResetGroupOffsetRequest) -> admin.ResetGroupOffsetResponse:
        """Let a group go on at the first message of a time."""
        group, topic = check_group(request.group.name), request.topic.name
        if not request.HasField("reset_timestamp"):
            raise ProxyRefusal(StatusCode.BAD_REQUEST, "reset_timestamp is missing")
        time_ms = millis(request.reset_timestamp)
        resets = await offset_reset.plan(self._admin, group, topic, time_ms)
        await offset_reset.reset(self._admin, group, resets)
        return admin.ResetGroupOffsetResponse()

    async def _groups(self, group: str, topic: str) -> Sequence[OnlineGroup]:
        """The groups that a request means."""
        if group:
            names = [check_group(group)]
        elif topic:
            names = await self._groups_of(topic)
        else:
            raise ProxyRefusal(StatusCode.BAD_REQUEST, "name a group, a topic, or both")
        return [await self._online(name) for name in names[:GROUPS_MAX]]

    async def _groups_of(self, topic: str) -> list[str]:
        route = await self._admin.known_route(topic)
        call = GetGroupsOfTopic(topic=topic)
        found, failed = await self._admin.ask_each(leader_addresses(route.broker_datas), call)
        check_some_replied(found, failed)
        lists = [codec.loads(reply.body, GroupList).group_list for reply in found.values()]
        return sorted({name for names in lists for name in names})

    async def _online(self, group: str) -> OnlineGroup:
        """The members of a group; Apache's brokers know none of this proxy's own."""
        call = GetConnections(consumer_group=group, with_subscriptions=True)
        answers, failed = await self._admin.ask_each(await self._admin.brokers(), call)
        for error in without_answers(failed, ResponseCode.CONSUMER_NOT_ONLINE).values():
            raise error
        own = self._clients.members_of(group)
        members = {one.caller.client_id: connection_of(one) for one in own}
        kinds = {one.topic: one.expression_type for each in own for one in subscriptions(each)}
        for reply in answers.values():
            body = codec.loads(reply.body, ConsumerConnection)
            table = body.subscription_table
            kinds |= {topic: one.expression_type for topic, one in table.items()}
            texts = {topic: one.sub_string for topic, one in table.items()}
            for one in body.connection_set:
                known = texts if one.subscriptions is None else one.subscriptions
                members.setdefault(one.client_id, replace(one, subscriptions=known))
        return OnlineGroup(group, [members[client_id] for client_id in sorted(members)], kinds)


def _client(member: ClientConnection) -> admin.ClientInfo:
    return admin.ClientInfo(
        client_id=member.client_id,
        version=member.release or release_of(member.version) or str(member.version),
        language="" if member.language is None else member.language.name,
        egress_ip=host_of(member.client_addr),
        message_model=_model(member),
    )


def _model(member: ClientConnection) -> admin.MessageModel:
    is_broadcast = member.message_model is MessageModel.BROADCASTING
    return admin.BROADCASTING if is_broadcast else admin.CLUSTERING


def _sum(queues: Iterable[QueueProgress]) -> Accumulation:
    """Accumulation of some queues; their `pull_offset` is how far messages were delivered."""
    total = Accumulation()
    for queue in queues:
        inflight = min(max(queue.pull_offset - queue.consumer_offset, 0), queue.lag)
        total.inflight_messages += inflight
        total.ready_messages += queue.lag - inflight
        total.accumulation += queue.lag
        total.last_consume_timestamp = max(total.last_consume_timestamp, queue.last_timestamp)
    return total
