"""A group's members: heartbeats, lists and notices of members, assignments, locks of queues."""

from typing import ClassVar

import msgspec

from roquet.wire.call import ACCESS_KEY, Call, Reply
from roquet.wire.codes import RequestCode


class HeartbeatReply(Reply, frozen=True, kw_only=True):
    """The broker's features, and whether the group's subscriptions changed."""

    supports_v2: bool = msgspec.field(default=False, name="IS_SUPPORT_HEART_BEAT_V2")
    subscription_changed: bool = msgspec.field(default=False, name="IS_SUB_CHANGE")


class Heartbeat(Call[HeartbeatReply], frozen=True, kw_only=True):
    """A client reports that it is alive, with its groups; the body is a HeartbeatData."""

    code: ClassVar = RequestCode.HEART_BEAT

    access_key: str | None = msgspec.field(default=None, name=ACCESS_KEY)
    """The user of the client: the signature adds it."""


class Unregister(Call[Reply], frozen=True, kw_only=True):
    """A client leaves a producer or a consumer group."""

    code: ClassVar = RequestCode.UNREGISTER_CLIENT

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumers(Call[Reply], frozen=True, kw_only=True):
    """The client ids of a group's members; the reply's body is a ConsumerIdList."""

    code: ClassVar = RequestCode.GET_CONSUMER_LIST_BY_GROUP

    consumer_group: str


class ConsumersChanged(Call[Reply], frozen=True, kw_only=True):
    """The broker's notice to members to divide the queues again."""

    code: ClassVar = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

    consumer_group: str


class CheckSubscription(Call[Reply], frozen=True, kw_only=True):
    """Check whether the broker can filter by an expression; the body is a CheckClientBody."""

    code: ClassVar = RequestCode.CHECK_CLIENT_CONFIG


class QueryAssignment(Call[Reply], frozen=True, kw_only=True):
    """Get one member's queues. Bodies: AssignmentQuery, QueueAssignments."""

    code: ClassVar = RequestCode.QUERY_ASSIGNMENT


class SetRequestMode(Call[Reply], frozen=True, kw_only=True):
    """Make a group pull or pop a topic; the body is a RequestMode."""

    code: ClassVar = RequestCode.SET_MESSAGE_REQUEST_MODE


class LockQueues(Call[Reply], frozen=True, kw_only=True):
    """Lock queues for one member of an ordered group; bodies: LockBody, LockedQueues."""

    code: ClassVar = RequestCode.LOCK_BATCH_MQ


class UnlockQueues(Call[Reply], frozen=True, kw_only=True):
    """Unlock queues; the body is a LockBody."""

    code: ClassVar = RequestCode.UNLOCK_BATCH_MQ
