"""Acknowledging: replies that wait until what they promise is as safe as the settings ask for."""

from typing import TypeVar

from roquet.broker.log.message_log import MessageLog
from roquet.broker.replication.replication import Replication
from roquet.net.router import HandlerReply
from roquet.wire.call import Reply

R = TypeVar("R", bound=Reply)


def when_safe(message_log: MessageLog, replication: Replication, reply: Reply) -> HandlerReply:
    """The reply, once all that is stored now is safe.

    Where disk or replicas take too long it is given all the same, as at Apache's broker: what was
    asked for is stored and will be done. StoreFailed is raised once the disk has failed.
    """
    if not replication.acknowledgements.is_needed:
        return reply
    return once_safe(replication, reply, message_log.store.end_position)


async def once_safe(replication: Replication, reply: R, position: int) -> R:
    """The reply, once the log in front of a position is safe or a timeout has passed."""
    await replication.acknowledgements.status(position)
    return reply
