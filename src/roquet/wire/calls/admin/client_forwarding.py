"""Operators' calls to one member of a group: brokers forward them, and the answer back.

The member gets the operator's request (307, 309) and what only the broker knows.
"""

from enum import Enum
from typing import Any, ClassVar, Final

import msgspec

from roquet.model.queue import MessageQueue
from roquet.model.subscription import Subscription
from roquet.wire.call import Call, Int, Reply
from roquet.wire.codes import RequestCode


class GetRunningInfo(Call[Reply], frozen=True, kw_only=True):
    """Get the state of a member; the reply's body is a RunningInfo."""

    code: ClassVar = RequestCode.GET_CONSUMER_RUNNING_INFO

    consumer_group: str
    client_id: str
    jstack_enable: bool = False
    """Whether to include the stacks of all its threads."""


class ConsumeDirectly(Call[Reply], frozen=True, kw_only=True):
    """Make a member handle one message now; the reply's body is a ConsumeDirectlyResult.

    The operator names the message, the broker adds its record as the body.
    """

    code: ClassVar = RequestCode.CONSUME_MESSAGE_DIRECTLY

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    """The broker's own id of the message, which locates its record."""
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A member's state of one queue (Java's ProcessQueueInfo). Times are ms since the epoch."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_size: int = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class PopInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A member's popped messages of one queue, or of a broker (Java's PopProcessQueueInfo)."""

    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: int = 0


class TopicRates(msgspec.Struct, frozen=True, kw_only=True):
    """A member's rates for a topic (Java's ConsumeStatus): times in ms, messages per second."""

    pull_ms: float = msgspec.field(default=0.0, name="pullRT")
    pulled: float = msgspec.field(default=0.0, name="pullTPS")
    handle_ms: float = msgspec.field(default=0.0, name="consumeRT")
    handled: float = msgspec.field(default=0.0, name="consumeOKTPS")
    failed: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    failed_in_all: int = msgspec.field(default=0, name="consumeFailedMsgs")
    """Within the last hour."""


class RunningInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """State of one member (Java's ConsumerRunningInfo)."""

    properties: dict[str, str] = {}
    subscription_set: list[Subscription] = []
    mq_table: dict[MessageQueue, QueueInfo] = {}
    mq_pop_table: dict[MessageQueue, PopInfo] = {}
    status_table: dict[str, TopicRates] = {}
    user_consumer_info: dict[str, str] = {}
    jstack: str | None = None
    """Stacks of its threads."""


NAME_SERVERS: Final = "PROP_NAMESERVER_ADDR"
CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
CLIENT_VERSION: Final = "PROP_CLIENT_VERSION"
ORDERLY: Final = "PROP_CONSUMEORDERLY"
THREADS: Final = "PROP_THREADPOOL_CORE_SIZE"
STARTED: Final = "PROP_CONSUMER_START_TIMESTAMP"
"""Names of properties that Apache's tools look at."""


class ConsumeResult(Enum):
    """Result of a member's handler for a message that it was given directly (Java's CMResult)."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeDirectlyResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Result of a direct consumption (Java's ConsumeMessageDirectlyResult)."""

    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeResult | None = None
    remark: str | None = None
    spent_ms: int = msgspec.field(default=0, name="spentTimeMills")


FORWARDED_CALLS: Final[tuple[type[Call[Any]], ...]] = (GetRunningInfo, ConsumeDirectly)
"""Calls that brokers answer by asking a client, and clients answer themselves."""
