"""Client forwarding: requests of operators for one member of a group, and its replies."""

from typing import Any, Final

from msgspec.structs import replace

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.proxied_members import ProxiedMembers
from roquet.broker.operations.reading_checks import ReadingChecks
from roquet.broker.refusals import system_error
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model.errors import CallError, CallRefused, CallTimeout, RecordError
from roquet.net.router import HandlerReply, Peer
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.client_forwarding import ConsumeDirectly, GetRunningInfo
from roquet.wire.codes import ResponseCode
from roquet.wire.records.message_id import parse_offset_message_id
from roquet.wire.records.record import decode

FORWARD_TIMEOUT_MS: Final = 10_000
"""Timeout of a member's reply in ms, as in genuine brokers."""

VERSION_MIN: Final = 62
"""V3_1_8_SNAPSHOT: the first version whose clients know these requests."""


class ClientForwardingHandler(BrokerComponent, frozen=True):
    """Forwards requests of operators to members of a group."""

    log: MessageLog
    tables: BrokerTables
    control: ControlPlane
    reading: ReadingChecks
    proxied: ProxiedMembers

    def running_info(self, call: GetRunningInfo, _peer: Peer) -> HandlerReply:
        """Return the running info of one member."""
        return self._relay(call, call.consumer_group, call.client_id)

    def consume_directly(self, call: ConsumeDirectly, _peer: Peer) -> HandlerReply:
        """Let one member handle one message; the record is sent with the request."""
        topic = self.tables.topics.get(call.topic) if call.topic else None
        group = self.tables.groups.get(call.consumer_group)
        record = self._record(call.msg_id)
        whole = replace(
            call,
            broker_name=self.control.settings.config.broker_name,
            topic_sys_flag=topic.topic_sys_flag if topic else call.topic_sys_flag,
            group_sys_flag=group.group_sys_flag if group else call.group_sys_flag,
            body=record,
        )
        return self._relay(whole, call.consumer_group, call.client_id or "")

    def _record(self, message_id: str | None) -> bytes:
        """The record of a message id. CallRefused for one that is unknown or not readable."""
        try:
            _, position = parse_offset_message_id(message_id or "")
        except RecordError as error:
            raise system_error(str(error)) from error
        record = self.log.store.message_at(position) if position >= 0 else None
        if record is None:
            raise system_error(f"can not find message by the offset, {position}")
        self.reading.check_delivered(decode(record).topic)
        return bytes(record)

    async def _relay(self, call: Call[Any], group: str, client_id: str) -> Reply:
        """The member's reply, or a refusal in the genuine broker's words."""
        member = await self._member(group, client_id)
        try:
            answer: Reply = await member.call(call, FORWARD_TIMEOUT_MS)
        except CallRefused as error:
            return Reply(code=error.code, remark=error.remark)
        except CallTimeout as error:
            raise CallRefused(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> Timeout: {error}",
            ) from error
        except CallError as error:
            raise system_error(
                f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            ) from error
        return Reply(code=answer.code, remark=answer.remark, body=answer.body)

    async def _member(self, group: str, client_id: str) -> Peer:
        """The connection of a member, or of its proxy.

        CallRefused if it is offline or its version too old.
        """
        members = self.tables.clients.consumers(group)
        known = members.members.values() if members else ()
        peers = [member.peer for member in known if member.client_id == client_id]
        if not peers and (proxy := await self.proxied.proxy_of(group, client_id)) is not None:
            peers = [proxy]
        if not peers:
            raise system_error(f"The Consumer <{group}> <{client_id}> not online")
        peer = peers[-1]  # the latest: one that reconnects may be on two
        if peer.version < VERSION_MIN:
            raise system_error(
                f"The Consumer <{client_id}> Version <{peer.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
        return peer
