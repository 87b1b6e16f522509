"""Names of retry, dead-letter, delay, half and system topics; the rules for valid names."""

import re
from collections.abc import Iterator
from typing import Final

from roquet.model.errors import UsageError

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

AUTO_CREATE_TOPIC: Final = "TBW102"
"""The topic whose settings an unknown topic inherits."""

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SET_ASIDE_TOPIC: Final = "rmq_sys_roquet_set_aside"
"""Topic in which the broker keeps copies of messages that one of its services cannot handle."""

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"

BROKER_ONLY_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        SET_ASIDE_TOPIC,
    }
)
"""Topics that only the broker writes to: a client's message to one of them is refused."""

INTERNAL_TOPICS: Final = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TIMER_TOPIC})
"""Topics of undelivered messages (delayed, timed, half) and of the broker's notes on them."""

SYSTEM_TOPICS: Final = BROKER_ONLY_TOPICS | {
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    TRACE_TOPIC,
    TIMER_TOPIC,
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    "CHECKPOINT_TOPIC",
}
"""Topics that are the system's on every broker, whether or not they exist there."""

SYSTEM_GROUPS: Final = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
    }
)

DLQ_READER_GROUP: Final = "roquet-dlq"
"""Group in which our own commands record how far dead letters have been resent."""

CLI_GROUP: Final = "roquet-cli"
"""Group of our commands that read without a group; it commits nothing."""

DASHBOARD_GROUP: Final = "roquet-dashboard"
"""Group that the dashboard's pages read and send as; it commits nothing."""

SPARK_GROUP: Final = "roquet-spark"
"""Group that Spark reads as by default; it commits nothing."""

PROXY_GROUP: Final = "roquet-proxy"
"""Producer group of our gRPC proxies: brokers ask those in it about members of groups."""

TOOL_GROUPS: Final = frozenset({DLQ_READER_GROUP, CLI_GROUP, DASHBOARD_GROUP, SPARK_GROUP})
"""Groups that our own tools read as. Lists of groups leave them out: nobody's work waits there."""

RESERVED_GROUPS: Final = frozenset(
    {"DEFAULT_CONSUMER", "CLIENT_INNER_PRODUCER", "__MONITOR_CONSUMER", DLQ_READER_GROUP}
)
"""Groups that users may not consume as: Java's default name, groups that Apache's clients and tools
use themselves, and ours."""

TOPIC_LENGTH_MAX: Final = 127
"""Bytes: the first version of the record keeps the length in a signed byte."""

DERIVED_TOPIC_LENGTH_MAX: Final = 255
"""Bytes of a retry or dead-letter topic; the prefix does not count against the user's limit."""

GROUP_LENGTH_MAX: Final = 120
"""Characters; leaves room for the retry prefix in a topic of 127 bytes."""

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_POP_RETRY_NAME: Final = re.compile(rf"{RETRY_PREFIX}{_NAME.pattern}\+{_NAME.pattern}")


def retry_topic(group: str) -> str:
    """Name of the topic in which a group's failed messages wait for their next try."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Name of a group's dead-letter topic: messages that failed every try."""
    return DLQ_PREFIX + group


def pop_retry_topic(group: str, topic: str) -> str:
    """Name of the retry topic for popped messages of one topic that were not acknowledged.

    It belongs to one group and topic: no other name has a plus (Apache's enableRetryTopicV2).
    """
    return f"{RETRY_PREFIX}{group}+{topic}"


def pop_retry_topic_v1(group: str, topic: str) -> str:
    """Older name of that retry topic, which several groups and topics may share.

    `%RETRY%pay_eu_orders` is that of group `pay` and topic `eu_orders`, that of `pay_eu` and
    `orders`, and the retry topic of a group `pay_eu_orders` that pulls.
    """
    return f"{RETRY_PREFIX}{group}_{topic}"


def retried_topic(group: str, topic: str) -> str:
    """The topic whose popped messages a retry topic of a group holds; any other topic itself."""
    own = retry_topic(group)
    is_own = topic[len(own) : len(own) + 1] in ("_", "+") and topic.startswith(own)
    return topic[len(own) + 1 :] or topic if is_own else topic


def possible_origins(retry_topic: str) -> Iterator[str]:
    """Topics whose popped messages a retry topic may hold: for an older name, all of its ends."""
    rest = retry_topic.removeprefix(RETRY_PREFIX)
    separator = "+" if "+" in rest else "_"
    while separator in rest:
        rest = rest.partition(separator)[2]
        yield rest


def group_of_retry(topic: str) -> str:
    """The group of a retry topic; with an older name of a pop retry topic, the topic follows it."""
    return topic.removeprefix(RETRY_PREFIX).partition("+")[0]


def revive_topic(cluster: str) -> str:
    """Name of the topic in which the broker logs pops and acknowledgements."""
    return REVIVE_PREFIX + cluster


def reply_topic(cluster: str) -> str:
    """Name of the topic in which the brokers of a cluster keep replies to requests."""
    return f"{cluster}_REPLY_TOPIC"


def can_clients_send_to(topic: str) -> bool:
    """Whether clients may send to a topic; the broker trusts the content of the others."""
    is_ours = topic in BROKER_ONLY_TOPICS or topic == TIMER_TOPIC or topic.startswith(REVIVE_PREFIX)
    return not is_ours


def is_retry(topic: str) -> bool:
    """Whether this is a retry topic."""
    return topic.startswith(RETRY_PREFIX)


def is_dlq(topic: str) -> bool:
    """Whether this is a dead-letter topic."""
    return topic.startswith(DLQ_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether a group belongs to RocketMQ itself."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_internal_group(group: str) -> bool:
    """Whether a group is none of the users': RocketMQ's own, or one of our own tools."""
    return is_system_group(group) or group in TOOL_GROUPS


def can_users_join(group: str) -> bool:
    """Whether users may consume in a group. Names with `%RETRY%` or `%DLQ%` in front are topics."""
    is_ours = is_system_group(group) or group in RESERVED_GROUPS
    return not (is_ours or is_retry(group) or is_dlq(group))


def is_text(name: object) -> bool:
    """Whether a name is a string at all: callers without a type checker may pass anything."""
    return isinstance(name, str)


def topic_fault(topic: str) -> str | None:
    """Describe the fault of a topic name, or return None for a valid one."""
    is_derived = is_text(topic) and (is_retry(topic) or is_dlq(topic))
    limit = DERIVED_TOPIC_LENGTH_MAX if is_derived else TOPIC_LENGTH_MAX
    return _fault("topic", topic, limit)


def topic_remark(topic: str) -> str | None:
    """Describe the fault of a topic name in Apache's words, or return None for a valid one.

    For replies to clients: programs match these texts.
    """
    if topic_fault(topic) is None:
        return None
    if not topic or topic.isspace():
        return "The specified topic is blank."
    if not _is_spelled_right(topic):
        return (
            f"The specified topic: {topic}, contains illegal characters, "
            "allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if is_retry(topic) or is_dlq(topic):
        return (
            f"The specified topic is DLQ or Retry topic: {topic}, and it's longer than topic max "
            f"length: {DERIVED_TOPIC_LENGTH_MAX}"
        )
    return f"The specified topic: {topic}, is longer than topic max length: {TOPIC_LENGTH_MAX}"


def group_fault(group: str) -> str | None:
    """Describe the fault of a group name, or return None for a valid one."""
    return _fault("group", group, GROUP_LENGTH_MAX)


def check_topic(topic: str) -> str:
    """Return the topic name; raises UsageError with the reason for an invalid one."""
    if fault := topic_fault(topic):
        raise UsageError(fault)
    return topic


def check_group(group: str) -> str:
    """Return the group name; raises UsageError with the reason for an invalid one."""
    if fault := group_fault(group):
        raise UsageError(fault)
    return group


def _fault(kind: str, name: str, length_max: int) -> str | None:
    if not is_text(name):
        return f"the {kind} name is a text, not {name!r:.100}"
    if not name or name.isspace():
        return f"the {kind} name is blank"
    if not (_is_spelled_right(name) if kind == "topic" else _NAME.fullmatch(name)):
        return f"the {kind} name {name!r} may hold only letters, digits, %, |, _ and -"
    if len(name) > length_max:
        return f"the {kind} name is {len(name)} characters long, {length_max} are allowed: {name!r}"
    return None


def _is_spelled_right(topic: str) -> bool:
    """Whether a topic's name has legal characters: a plus is legal in pop retry topics alone."""
    return bool(_NAME.fullmatch(topic) or _POP_RETRY_NAME.fullmatch(topic))
