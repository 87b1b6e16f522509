"""Clients for operators: their stacks, their state, and one message for one of them.

A client that is connected to this proxy is asked by its stream, any other one through the brokers.
"""

from typing import Any

import msgspec

from roquet.admin.client import AdminClient, without_answers
from roquet.model.errors import NotFound
from roquet.model.names import check_group
from roquet.model.subscription import SQL92
from roquet.proxy.admin.topics import TopicsAdmin, outgoing
from roquet.proxy.handlers.members import MembersHandler
from roquet.proxy.messages import to_queue
from roquet.proxy.protos import admin_pb2 as admin
from roquet.proxy.protos import definition_pb2 as pb
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.rules.proxy.validation import check_topic
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin import client_forwarding as calls
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec


class ClientsAdmin:
    """Passes operators' requests on to clients."""

    __slots__ = ("_admin", "_members", "_topics")

    def __init__(self, client: AdminClient, members: MembersHandler, topics: TopicsAdmin) -> None:
        self._admin = client
        self._members = members
        self._topics = topics

    async def stacks(
        self, request: admin.PrintThreadStackTraceRequest
    ) -> admin.PrintThreadStackTraceResponse:
        """The stacks of a client's threads."""
        info = await self._info(request.group.name, request.client_id, stacks=True)
        return admin.PrintThreadStackTraceResponse(thread_stack_trace=info.jstack or "")

    async def running_info(
        self, request: admin.GetConsumerRunningInfoRequest
    ) -> admin.GetConsumerRunningInfoResponse:
        """A client's state; those that came by gRPC tell no more than their settings."""
        info = await self._info(request.group.name, request.client_id, stacks=False)
        return admin.GetConsumerRunningInfoResponse(consumer_running_info=_running_info(info))

    async def verify(self, request: admin.VerifyMessageRequest) -> admin.VerifyMessageResponse:
        """Let a client handle a message, whose progress that does not change."""
        topic, group = check_topic(request.topic.name), check_group(request.group.name)
        if not (found := await self._topics.find(topic, request.message_id)):
            text = f"topic {topic} has no message {request.message_id:.200}"
            raise ProxyRefusal(StatusCode.MESSAGE_NOT_FOUND, text)
        message = found[-1]
        if (member := self._members.member(group, request.client_id)) is not None:
            result = await self._members.verify(member, outgoing(message))
        else:
            call = calls.ConsumeDirectly(
                consumer_group=group,
                client_id=request.client_id,
                topic=topic,
                msg_id=message.offset_message_id,
            )
            result = codec.loads(
                (await self._ask(call, request.client_id)).body, calls.ConsumeDirectlyResult
            )
        if result.consume_result is calls.ConsumeResult.CR_SUCCESS:
            return admin.VerifyMessageResponse()
        text = f"the client's result is {result.consume_result and result.consume_result.name}"
        remark = f": {result.remark}" if result.remark else ""
        status = pb.Status(code=pb.FAILED_TO_CONSUME_MESSAGE, message=text + remark)
        return admin.VerifyMessageResponse(status=status)

    async def _info(self, group: str, client_id: str, *, stacks: bool) -> calls.RunningInfo:
        if (member := self._members.member(check_group(group), client_id)) is not None:
            return self._members.info(
                member, await self._members.stacks(member) if stacks else None
            )
        call = calls.GetRunningInfo(consumer_group=group, client_id=client_id, jstack_enable=stacks)
        return codec.loads((await self._ask(call, client_id)).body, calls.RunningInfo)

    async def _ask(self, call: Call[Reply], client_id: str) -> Reply:
        """The answer of the first broker that knows the client; NotFound if none does."""
        answers, failed = await self._admin.ask_each(await self._admin.brokers(), call)
        for reply in answers.values():
            return reply
        for error in without_answers(failed, ResponseCode.SYSTEM_ERROR).values():
            raise error
        raise NotFound(f"client {client_id!r:.200} is not connected, or is in another group")


def _running_info(info: calls.RunningInfo) -> admin.ConsumerRunningInfo:
    found = admin.ConsumerRunningInfo(properties=info.properties)
    for one in info.subscription_set:
        found.subscriptions[one.topic].type = pb.SQL if one.expression_type == SQL92 else pb.TAG
        found.subscriptions[one.topic].expression = one.sub_string
    for queue, held in info.mq_table.items():
        found.message_queue_table.add(
            message_queue=to_queue(queue), process_queue_info=_copied(admin.ProcessQueueInfo, held)
        )
    for topic, rates in info.status_table.items():
        found.consume_status_table[topic].CopyFrom(_copied(admin.ConsumeStatus, rates))
    return found


def _copied(kind: Any, value: msgspec.Struct) -> Any:
    """A message with the values of a struct, whose fields are those of the message in order."""
    names = [field.name for field in kind.DESCRIPTOR.fields]
    return kind(**dict(zip(names, msgspec.structs.astuple(value), strict=True)))
