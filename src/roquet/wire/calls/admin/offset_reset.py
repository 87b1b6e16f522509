"""A group's offsets are set by others: operators ask brokers, and brokers ask its members."""

from typing import ClassVar

from roquet.wire.call import Call, Int, Long, Reply
from roquet.wire.codes import RequestCode


class ResetClientOffset(Call[Reply], frozen=True, kw_only=True):
    """A broker tells a member where to go on; nobody awaits an answer.

    The body is a ResetOffsetBody, for members written in C++ a ResetOffsetList.
    """

    code: ClassVar = RequestCode.RESET_CONSUMER_CLIENT_OFFSET

    topic: str
    group: str
    timestamp: Long = -1
    """The time that was asked for; the offsets of the body are what counts."""
    is_force: bool = True
    """Whether offsets may also go forwards."""


class GetClientStatus(Call[Reply], frozen=True, kw_only=True):
    """How far a member is in the queues that it holds; the answer's body is a ClientStatus."""

    code: ClassVar = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT

    topic: str
    group: str
    client_addr: str | None = None


class ResetOffset(Call[Reply], frozen=True, kw_only=True):
    """An operator has a group go on elsewhere; the reply's body is a ResetOffsetBody."""

    code: ClassVar = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET

    topic: str
    group: str
    queue_id: Int = -1
    """-1 for all queues."""
    offset: Long | None = None
    """Where one queue is to go on; else the time says it, and so does -1."""
    timestamp: Long
    """Go on with what was stored then or later; -1: behind everything."""
    is_force: bool = False
    """Whether a time may also take offsets forwards, where the members are told to set them."""


class GetGroupStatus(Call[Reply], frozen=True, kw_only=True):
    """How far a group's members are in a topic's queues; the reply's body is a ClientStatus."""

    code: ClassVar = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS

    topic: str
    group: str
    client_addr: str | None = None
    """The client id of the only member to be asked; all without it."""


class CloneOffsets(Call[Reply], frozen=True, kw_only=True):
    """A group goes on where another one is."""

    code: ClassVar = RequestCode.CLONE_GROUP_OFFSET

    src_group: str
    dest_group: str
    topic: str | None = None
    """All topics of which the first one has progress, when it is absent or empty."""
    offline: bool = False
    """Whether topics count, too, to which the first group does not listen now."""
