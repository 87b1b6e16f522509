"""Acknowledging: replies that wait until what they promise is as safe as the settings ask for."""

from typing import TypeVar

from roquet.broker.log.message_log import MessageLog
from roquet.broker.replication.confirmation.acknowledgements import REMARKS
from roquet.broker.replication.replication import Replication
from roquet.model.errors import CallRefused
from roquet.net.router import HandlerReply
from roquet.rules.replication.acknowledgement import PutStatus
from roquet.wire.call import Reply
from roquet.wire.codes import ResponseCode

R = TypeVar("R", bound=Reply)


def when_safe(message_log: MessageLog, replication: Replication, reply: Reply) -> HandlerReply:
    """The reply, once all that is stored now is safe.

    Where roles are fixed it is given all the same when disk or replicas take too long, as at
    Apache's broker: what was asked for is stored and will be done. A master that may be replaced by
    another one refuses then, since its log may be cut: CallRefused. StoreFailed is raised once the
    disk has failed.
    """
    if not replication.acknowledgements.is_needed:
        return reply
    return once_safe(replication, reply, message_log.store.end_position)


async def once_safe(replication: Replication, reply: R, position: int) -> R:
    """The reply, once the log in front of a position is safe or a timeout has passed.

    Raises CallRefused and StoreFailed, see `when_safe`.
    """
    acknowledgements = replication.acknowledgements
    status = await acknowledgements.status(position)
    if status is PutStatus.FLUSH_SLAVE_TIMEOUT and acknowledgements.may_lose_stored:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, REMARKS[status])
    return reply
