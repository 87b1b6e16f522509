"""Topics and messages for operators: types, routes, look-ups by id or key, and test messages."""

from typing import Final

import msgspec

from roquet.admin.client import AdminClient
from roquet.admin.messages import LATEST_MS, by_id, by_key
from roquet.client.connection.identity import MessageIdGenerator
from roquet.model.errors import UsageError
from roquet.model.message import StoredMessage
from roquet.net.clock import Clock
from roquet.proxy.caller import Caller
from roquet.proxy.cluster import ProxiedCluster
from roquet.proxy.handlers.sending import SendingHandler
from roquet.proxy.messages import millis, to_protobuf
from roquet.proxy.protos import admin_pb2 as admin
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.rules.proxy.validation import check_topic
from roquet.rules.topic_attributes import MESSAGE_TYPE

MESSAGES_MAX: Final = 64
"""Messages of one answer."""

OPERATOR: Final = Caller("roquet-proxy-admin", "", "", "", None)
"""The sender of operators' messages."""


class TopicsAdmin:
    """Answers operators' requests about topics and messages."""

    __slots__ = ("_admin", "_clock", "_cluster", "_sending")

    def __init__(
        self, client: AdminClient, cluster: ProxiedCluster, sending: SendingHandler, clock: Clock
    ) -> None:
        self._admin = client
        self._cluster = cluster
        self._sending = sending
        self._clock = clock

    async def describe(
        self, request: admin.DescribeTopicStatusRequest
    ) -> admin.DescribeTopicStatusResponse:
        """The type of messages that a topic takes, and its attributes; brokers note no more."""
        topic = check_topic(request.topic.name)
        await self._cluster.find_route(topic)
        attributes = await self._cluster.topic_attributes(topic)
        kind = attributes.get(MESSAGE_TYPE, "NORMAL")
        known = (
            kind if kind in pb.MessageType.DESCRIPTOR.values_by_name else "MESSAGE_TYPE_UNSPECIFIED"
        )
        return admin.DescribeTopicStatusResponse(topic_message_type=known, tags=attributes)

    async def route(self, request: admin.GetTopicRouteRequest) -> admin.GetTopicRouteResponse:
        """A topic's route as name servers give it, in JSON."""
        route = await self._admin.known_route(request.topic.name)
        return admin.GetTopicRouteResponse(topic_route_data=msgspec.json.encode(route).decode())

    async def query(self, request: admin.ListMessageRequest) -> admin.ListMessageResponse:
        """Messages of an id or a key, oldest first."""
        found = [
            message
            for message in await self._find(request)
            if request.broker_name in ("", message.broker_name)
            and (not request.HasField("queue_id") or request.queue_id == message.queue_id)
        ]
        return admin.ListMessageResponse(messages=map(outgoing, found))

    async def _find(self, request: admin.ListMessageRequest) -> list[StoredMessage]:
        topic = check_topic(request.topic.name)
        match request.WhichOneof("search_key"):
            case "message_id":
                return await self.find(topic, request.message_id)
            case "message_key":
                end_ms = millis(request.end_timestamp) + 1
                return await by_key(
                    self._admin,
                    topic,
                    request.message_key,
                    begin_ms=max(millis(request.begin_timestamp), 0),
                    end_ms=end_ms if request.HasField("end_timestamp") else LATEST_MS,
                    count=min(max(request.max_message_nums, 1), MESSAGES_MAX),
                )
            case _:
                text = "name a message_id or a message_key: others are not looked for"
                raise ProxyRefusal(StatusCode.BAD_REQUEST, text)

    async def find(self, topic: str, message_id: str) -> list[StoredMessage]:
        """Messages of an id, a producer's or a broker's; empty without any."""
        found = await by_key(self._admin, topic, message_id, unique=True)
        try:
            return found or await by_id(self._admin, message_id)
        except UsageError:  # it is no broker's id
            return []

    async def send(self, request: admin.AdminSendMessageRequest) -> admin.AdminSendMessageResponse:
        """Store a message as a producer would."""
        message = pb.Message(
            topic=request.topic,
            body=request.body,
            user_properties=request.user_properties,
            system_properties=request.system_properties,
        )
        system = message.system_properties
        keys: MessageIdGenerator = self._cluster.session.identity.keys
        system.message_id = keys.make(self._clock.now_ms())
        if request.tag:
            system.tag = request.tag
        if request.key:
            system.keys.append(request.key)
        answer = await self._sending.send(service.SendMessageRequest(messages=[message]), OPERATOR)
        return admin.AdminSendMessageResponse(status=answer.status, message_id=system.message_id)


def outgoing(message: StoredMessage) -> pb.Message:
    """A message that was looked up, as clients get it."""
    return to_protobuf(message, message.body, 0, message.topic)
