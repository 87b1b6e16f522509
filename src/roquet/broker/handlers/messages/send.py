"""Send: stores messages of producers, one at a time or in batches.

Every reply names the region, refusals as well: the C++ client reads it.
"""

from collections.abc import Awaitable
from functools import partial

from msgspec.structs import replace

from roquet.broker.control import ControlPlane
from roquet.broker.ingest.append import SendCall
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.sending import check_in_sync, must_wait, select_queue, send_refusal
from roquet.broker.replication.confirmation.acknowledgements import REMARKS
from roquet.broker.replication.confirmation.status_wait import StatusWait
from roquet.broker.replication.replication import Replication
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model.errors import CallRefused, MessageIllegal, StoreError, StoreFailed
from roquet.net.reply_when import ReplyWhen
from roquet.net.router import HandlerReply, Peer
from roquet.rules.replication.acknowledgement import PutStatus
from roquet.wire.call import Reply
from roquet.wire.calls.send import SendReply
from roquet.wire.codes import ResponseCode


class SendHandler:
    """Stores messages of producers."""

    __slots__ = ("_control", "_log", "_replication", "_tables")

    def __init__(
        self, log: MessageLog, tables: BrokerTables, control: ControlPlane, replication: Replication
    ) -> None:
        self._log = log
        self._tables = tables
        self._control = control
        self._replication = replication

    def send(self, call: SendCall, peer: Peer) -> HandlerReply:
        """Store one message, or the messages of a batch: its field tells, whatever the code."""
        try:
            check_in_sync(self._replication, call)
            queue_id = select_queue(self._tables, self._control, call)
            if call.batch:
                return self._batch(call, queue_id, peer)
            stored = self._log.ingest.append(call, queue_id, peer)
        except (CallRefused, MessageIllegal, StoreError) as error:
            return send_refusal(self._control, error)
        appended, config = stored.appended, self._control.settings.config
        reply = SendReply(
            msg_id=self._log.ingest.message_id(appended.position),
            queue_id=queue_id,
            queue_offset=appended.queue_offset,
            transaction_id=stored.unique_key,
            region=config.region,
            trace_on=config.trace_on,
        )
        if stored.recall_handle:
            reply = replace(reply, recall_handle=stored.recall_handle)
        waits = stored.waits or must_wait(self._replication, call)
        if waits and self._replication.acknowledgements.is_needed:
            answer = self._when_safe(reply, appended.position + appended.size)
            if call.topic in self._tables.replica_copies.unknown:
                return self._once_known(call.topic, answer)
            return answer
        return reply

    def _batch(self, call: SendCall, queue_id: int, peer: Peer) -> HandlerReply:
        stored = self._log.ingest.append_batch(call, queue_id, peer)
        appended, config = stored.appended, self._control.settings.config
        reply = SendReply(
            msg_id=self._log.ingest.message_ids(appended.positions),
            queue_id=queue_id,
            queue_offset=appended.queue_offset,
            region=config.region,
            trace_on=config.trace_on,
        )
        if self._replication.acknowledgements.is_needed and stored.waits:
            answer = self._when_safe(reply, appended.end)
            if call.topic in self._tables.replica_copies.unknown:
                return self._once_known(call.topic, answer)
            return answer
        return reply

    async def _once_known(self, topic: str, answer: Awaitable[Reply | None]) -> Reply | None:
        """The reply to a message that has made its topic, once replicas know that one, too."""
        reply = await answer
        if reply is not None and reply.code == ResponseCode.SUCCESS:
            await self._tables.replica_copies.reach_made(self._control.clock, topic)
        return reply

    def _when_safe(self, reply: SendReply, position: int) -> Awaitable[Reply | None]:
        """The reply once disk and replicas have the message; another status if it takes too long.

        When the disk has failed the code is SYSTEM_ERROR, which leaves open whether it is stored.
        """
        acknowledgements = self._replication.acknowledgements
        wait = acknowledgements.wait(position)
        if wait is None:
            return _after(acknowledgements.status(position), reply)
        decide = partial(_reply, wait, reply)
        return ReplyWhen(wait.mark, position, wait.begun_ms, wait.deadline_ms, decide)


def _reply(wait: StatusWait, reply: SendReply, reached: bool) -> SendReply | Awaitable[SendReply]:
    status = wait.status(reached)
    return _with_status(reply, status) if isinstance(status, PutStatus) else _after(status, reply)


async def _after(status: Awaitable[PutStatus], reply: SendReply) -> SendReply:
    try:
        return _with_status(reply, await status)
    except StoreFailed as error:
        return replace(reply, code=ResponseCode.SYSTEM_ERROR, remark=str(error))


def _with_status(reply: SendReply, status: PutStatus) -> SendReply:
    if status is PutStatus.PUT_OK:
        return reply
    return replace(reply, code=ResponseCode(status), remark=REMARKS[status])
