"""Safe replies: given once what they promise is as safe as the settings ask for.

                        disk or replicas too late               the disk has failed
when_safe, once_safe    given all the same; a master that       StoreFailed
                        may be replaced refuses
when_certain            refused                                 StoreFailed
when_stored             with a status of its own                SYSTEM_ERROR
"""

from collections.abc import Awaitable
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from roquet.broker.control import ControlPlane
from roquet.broker.log.message_log import MessageLog
from roquet.broker.replication.confirmation.acknowledgements import REMARKS, StatusWait
from roquet.broker.replication.replication import Replication
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model.errors import CallRefused, StoreFailed
from roquet.net.router import HandlerReply, ReplyWhen
from roquet.rules.replication.acknowledgement import PutStatus
from roquet.wire.call import Reply
from roquet.wire.calls.send import SendReply
from roquet.wire.codes import ResponseCode

R = TypeVar("R", bound=Reply)


class SafeReplies:
    """Holds replies back until disk and replicas have what was stored before them."""

    __slots__ = ("_acknowledgements", "_clock", "_log", "_tables")

    def __init__(
        self, log: MessageLog, tables: BrokerTables, control: ControlPlane, replication: Replication
    ) -> None:
        self._log, self._tables, self._clock = log, tables, control.clock
        self._acknowledgements = replication.acknowledgements

    def when_safe(self, reply: R) -> R | Awaitable[R]:
        """The reply, once all that is stored now is safe; see `once_safe`."""
        if not self._acknowledgements.is_needed:
            return reply
        return self.once_safe(reply, self._log.store.end_position)

    async def once_safe(self, reply: R, position: int) -> R:
        """The reply, once the log in front of a position is safe or a timeout has passed.

        Where roles are fixed it is given all the same when disk or replicas take too long, as in
        Apache's broker: what was asked for is stored and will be done. A master that may be
        replaced by another one refuses then, since its log may be cut: CallRefused. StoreFailed is
        raised once the disk has failed.
        """
        if not self._acknowledgements.is_needed:
            return reply
        status = await self._acknowledgements.status(position)
        if status is PutStatus.FLUSH_SLAVE_TIMEOUT and self._acknowledgements.may_lose_stored:
            raise CallRefused(ResponseCode.SYSTEM_ERROR, REMARKS[status])
        return reply

    async def when_certain(self, reply: R, position: int) -> R:
        """The reply, once disk and replicas have a message; a refused client tries again."""
        status = await self._acknowledgements.status(position)
        if status is not PutStatus.PUT_OK:
            raise CallRefused(ResponseCode.SYSTEM_ERROR, REMARKS[status])
        return reply

    def when_stored(self, reply: SendReply, position: int, topic: str) -> HandlerReply:
        """The reply to a send, once disk and replicas have the message and know its topic.

        It has another status when that takes too long. When the disk has failed the code is
        SYSTEM_ERROR, which leaves open whether the message is stored.
        """
        acknowledgements = self._acknowledgements
        if not acknowledgements.is_needed:
            return reply
        answer: Awaitable[Reply | None]
        if (wait := acknowledgements.wait(position)) is None:
            answer = _with_status_later(reply, acknowledgements.status(position))
        else:
            decide = partial(_decided, reply, wait)
            answer = ReplyWhen(wait.mark, position, wait.begun_ms, wait.deadline_ms, decide)
        if topic in self._tables.replica_copies.unknown:
            return self._once_topic_is_known(answer, topic)
        return answer

    async def _once_topic_is_known(
        self, answer: Awaitable[Reply | None], topic: str
    ) -> Reply | None:
        reply = await answer
        if reply is not None and reply.code == ResponseCode.SUCCESS:
            await self._tables.replica_copies.reach_made(self._clock, topic)
        return reply


def _decided(reply: SendReply, wait: StatusWait, reached: bool) -> SendReply | Awaitable[SendReply]:
    """The reply to a send whose wait for replicas has ended, or one that takes longer still."""
    status = wait.status(reached)
    if isinstance(status, PutStatus):
        return _with_status(reply, status)
    return _with_status_later(reply, status)


async def _with_status_later(reply: SendReply, status: Awaitable[PutStatus]) -> SendReply:
    try:
        return _with_status(reply, await status)
    except StoreFailed as error:
        return replace(reply, code=ResponseCode.SYSTEM_ERROR, remark=str(error))


def _with_status(reply: SendReply, status: PutStatus) -> SendReply:
    if status is PutStatus.PUT_OK:
        return reply
    return replace(reply, code=ResponseCode(status), remark=REMARKS[status])
