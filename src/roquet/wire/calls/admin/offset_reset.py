"""Offset reset: operators ask brokers, and brokers ask a group's members."""

from typing import ClassVar

from roquet.wire.call import Call, Int, Long, Reply
from roquet.wire.codes import RequestCode


class ResetClientOffset(Call[Reply], frozen=True, kw_only=True):
    """A broker tells a member at which offsets to continue; one way.

    The body is a ResetOffsetBody, for members written in C++ a ResetOffsetList.
    """

    code: ClassVar = RequestCode.RESET_CONSUMER_CLIENT_OFFSET

    topic: str
    group: str
    timestamp: Long = 0
    """The time that was asked for; the offsets of the body take precedence."""
    is_force: bool = False
    """Whether offsets may also move forwards."""


class GetClientStatus(Call[Reply], frozen=True, kw_only=True):
    """Get a member's offsets in the queues that it holds; the reply's body is a ClientStatus."""

    code: ClassVar = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT

    topic: str
    group: str
    client_addr: str | None = None


class ResetOffset(Call[Reply], frozen=True, kw_only=True):
    """Reset a group's offsets; the reply's body is a ResetOffsetBody."""

    code: ClassVar = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET

    topic: str
    group: str
    queue_id: Int = -1
    """-1 for all queues."""
    offset: Long | None = None
    """Offset for one queue; absent or -1: by `timestamp`."""
    timestamp: Long
    """Continue with messages stored then or later; -1: behind the last one."""
    is_force: bool = False
    """Whether a time may also move offsets forwards, if the members are told to set them."""


class GetGroupStatus(Call[Reply], frozen=True, kw_only=True):
    """Get the offsets of a group's members in a topic's queues; the body is a ClientStatus."""

    code: ClassVar = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS

    topic: str
    group: str
    client_addr: str | None = None
    """Client id of the only member to ask; absent: all."""


class CloneOffsets(Call[Reply], frozen=True, kw_only=True):
    """Copy the progress of one group to another."""

    code: ClassVar = RequestCode.CLONE_GROUP_OFFSET

    src_group: str
    dest_group: str
    topic: str | None = None
    """If absent or empty: all topics in which the first group has progress."""
    offline: bool = False
    """Whether to include topics that the first group does not subscribe to now."""
