"""Members: what brokers ask this proxy about its consumers, for operators.

Brokers pass on operators' requests: who is in a group (203), how is one of them (307), and let it
handle one message (309). Apache's brokers ask no proxy.
"""

from typing import Final

from roquet.model.errors import CallRefused, CallTimeout, ConnectFailed
from roquet.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel, Subscription
from roquet.net.clock import Clock
from roquet.net.router import Peer
from roquet.proxy.clients import ClientTable, ProxyClient
from roquet.proxy.cluster import ProxiedCluster
from roquet.proxy.messages import filter_of, to_protobuf
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.wire.call import Reply
from roquet.wire.calls.admin import client_forwarding as calls
from roquet.wire.calls.admin.group import GetConnections
from roquet.wire.calls.bodies import ClientConnection, ConsumerConnection
from roquet.wire.codes import VERSION, Language, ResponseCode, number_of
from roquet.wire.fastjson import codec
from roquet.wire.records.record import decode, to_message

STACKS_LENGTH_MAX: Final = 1024 * 1024
"""Characters of a client's stacks; what is longer is cut, since brokers take it in one frame."""

RESULTS: Final = {
    pb.OK: calls.ConsumeResult.CR_SUCCESS,
    pb.FAILED_TO_CONSUME_MESSAGE: calls.ConsumeResult.CR_LATER,
    pb.MESSAGE_CORRUPTED: calls.ConsumeResult.CR_RETURN_NULL,
}
"""Results by the statuses of clients; others are CR_THROW_EXCEPTION."""


class MembersHandler:
    """Answers brokers' questions about the members of groups."""

    __slots__ = ("_clients", "_clock", "_nonce")

    def __init__(self, cluster: ProxiedCluster, clients: ClientTable, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock
        self._nonce = 0
        router = cluster.session.router
        router.add(GetConnections, self.connections)
        router.add(calls.GetRunningInfo, self.running_info)
        router.add(calls.ConsumeDirectly, self.consume_directly)

    def connections(self, call: GetConnections, _peer: Peer) -> Reply:
        """Return the members of a group that are connected to this proxy."""
        members = self._clients.members_of(call.consumer_group)
        if not members:
            raise CallRefused(
                ResponseCode.CONSUMER_NOT_ONLINE, f"no member of {call.consumer_group} is here"
            )
        body = ConsumerConnection(
            connection_set=[connection_of(member) for member in members],
            subscription_table={one.topic: one for each in members for one in subscriptions(each)},
            consume_type=ConsumeType.CONSUME_POP,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        )
        return Reply(body=codec.dumps(body))

    async def running_info(self, call: calls.GetRunningInfo, _peer: Peer) -> Reply:
        """Return a member's state, with the stacks of its threads where they are asked for."""
        member = self._known(call.consumer_group, call.client_id)
        stacks = await self.stacks(member) if call.jstack_enable else None
        return Reply(body=codec.dumps(self.info(member, stacks)))

    def info(self, member: ProxyClient, stacks: str | None = None) -> calls.RunningInfo:
        """A member's state, as far as the proxy knows it."""
        properties = {
            **member.settings.client_properties,
            "consumerGroup": member.group,
            calls.CONSUME_TYPE: ConsumeType.CONSUME_POP.name,
            calls.CLIENT_VERSION: f"V{member.caller.version.replace('.', '_')}",
            calls.ORDERLY: str(member.settings.subscription.fifo).lower(),
            calls.STARTED: str(member.since_ms),
        }
        return calls.RunningInfo(
            properties=properties, subscription_set=subscriptions(member), jstack=stacks
        )

    async def consume_directly(self, call: calls.ConsumeDirectly, _peer: Peer) -> Reply:
        """Let a member handle the message of a record, and return what came of it."""
        member = self._known(call.consumer_group, call.client_id or "")
        message = to_message(decode(call.body), decompress=False)
        sent = to_protobuf(message, message.body, message.sys_flag, message.topic)
        return Reply(body=codec.dumps(await self.verify(member, sent)))

    async def stacks(self, member: ProxyClient) -> str:
        """The stacks of a member's threads, cut when they are long. Raises CallRefused."""
        nonce = self._next_nonce()
        asked = service.PrintThreadStackTraceCommand(nonce=nonce)
        command = service.TelemetryCommand(print_thread_stack_trace_command=asked)
        answer = await _answer(member, nonce, command)
        return answer.thread_stack_trace.thread_stack_trace[:STACKS_LENGTH_MAX]

    async def verify(self, member: ProxyClient, message: pb.Message) -> calls.ConsumeDirectlyResult:
        """Let a member handle a message. Raises CallRefused without an answer."""
        nonce = self._next_nonce()
        asked = service.VerifyMessageCommand(nonce=nonce, message=message)
        begun_ms = self._clock.monotonic_ms()
        command = service.TelemetryCommand(verify_message_command=asked)
        status = (await _answer(member, nonce, command)).status
        return calls.ConsumeDirectlyResult(
            order=member.settings.subscription.fifo,
            consume_result=RESULTS.get(status.code, calls.ConsumeResult.CR_THROW_EXCEPTION),
            remark=status.message or None,
            spent_ms=self._clock.monotonic_ms() - begun_ms,
        )

    def member(self, group: str, client_id: str) -> ProxyClient | None:
        """The member of a group with this client id; None if it is not connected here."""
        found = self._clients.get(client_id)
        return found if found is not None and found.is_member_of(group) else None

    def _known(self, group: str, client_id: str) -> ProxyClient:
        if (found := self.member(group, client_id)) is not None:
            return found
        raise CallRefused(
            ResponseCode.CONSUMER_NOT_ONLINE, f"{client_id} of {group} is not connected here"
        )

    def _next_nonce(self) -> str:
        self._nonce += 1
        return str(self._nonce)


async def _answer(
    member: ProxyClient, nonce: str, command: service.TelemetryCommand
) -> service.TelemetryCommand:
    try:
        return await member.ask(nonce, command)
    except CallTimeout as error:
        raise CallRefused(ResponseCode.CONSUME_MSG_TIMEOUT, str(error)) from None
    except ConnectFailed as error:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None


def subscriptions(member: ProxyClient) -> list[Subscription]:
    """A member's subscriptions, as remoting clients would send them."""
    found = []
    for entry in member.settings.subscription.subscriptions:
        kind, text = filter_of(entry.expression)
        found.append(Subscription(topic=entry.topic.name, sub_string=text, expression_type=kind))
    return found


def connection_of(member: ProxyClient) -> ClientConnection:
    """A member, as brokers list it."""
    caller, said = member.caller, dict(member.settings.client_properties)
    return ClientConnection(
        client_id=caller.client_id,
        client_addr=caller.address,
        language=language_of(member),
        version=number_of(caller.version) or VERSION,
        subscriptions={one.topic: one.sub_string for one in subscriptions(member)},
        message_model=MessageModel.CLUSTERING,
        consume_type=ConsumeType.CONSUME_POP,
        release=caller.version or None,
        properties=said or None,
    )


def language_of(member: ProxyClient) -> Language:
    """A client's language; OTHER for one that RocketMQ has no name for."""
    if member.settings.user_agent.language == pb.NODE_JS:
        return Language.NODE_JS  # its header says HTTP
    return Language.__members__.get(member.caller.language, Language.OTHER)
