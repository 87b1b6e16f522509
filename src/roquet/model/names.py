"""Retry, dead-letter, delay, half and system topic names; what makes a name valid."""

import re
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
"""Where the broker keeps copies of messages that one of its services cannot handle."""

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
"""Topics to which the broker itself writes: a client's message to one of them is refused."""

INTERNAL_TOPICS: Final = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TIMER_TOPIC})
"""Topics of messages that are not delivered yet (delayed, timed, half) and of notes on them."""

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
"""Under which our own commands note how far dead letters were sent again."""

RESERVED_GROUPS: Final = frozenset(
    {"DEFAULT_CONSUMER", "CLIENT_INNER_PRODUCER", "__MONITOR_CONSUMER", DLQ_READER_GROUP}
)
"""Groups whose members would be taken for something else: Java's name of a group that was not
named, those of genuine clients' and tools' own use, and ours."""

TOPIC_LENGTH_MAX: Final = 127
"""Bytes: the record's first version keeps the length in a signed byte."""

DERIVED_TOPIC_LENGTH_MAX: Final = 255
"""Bytes of a retry or dead-letter topic: their prefix does not count against the user."""

GROUP_LENGTH_MAX: Final = 120
"""Characters: room for the retry prefix in a topic of 127."""

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def retry_topic(group: str) -> str:
    """Where a group's failed messages wait for their next try."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where a group's messages end that failed every try."""
    return DLQ_PREFIX + group


def pop_retry_topic(group: str, topic: str) -> str:
    """Where a group's messages of one topic come again that were popped and not acknowledged."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def revive_topic(cluster: str) -> str:
    """Where the broker notes what was popped and what was acknowledged."""
    return REVIVE_PREFIX + cluster


def reply_topic(cluster: str) -> str:
    """Where the brokers of a cluster keep the answers to requests."""
    return f"{cluster}_REPLY_TOPIC"


def can_clients_send_to(topic: str) -> bool:
    """Whether clients may send to a topic; what they could forge in others would be believed."""
    is_ours = topic in BROKER_ONLY_TOPICS or topic == TIMER_TOPIC or topic.startswith(REVIVE_PREFIX)
    return not is_ours


def is_retry(topic: str) -> bool:
    """Whether this is some group's retry topic."""
    return topic.startswith(RETRY_PREFIX)


def is_dlq(topic: str) -> bool:
    """Whether this is some group's dead-letter topic."""
    return topic.startswith(DLQ_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether a group belongs to the system itself."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def can_users_join(group: str) -> bool:
    """Whether users may consume as members of a group; `%RETRY%` and `%DLQ%` begin topics."""
    is_ours = is_system_group(group) or group in RESERVED_GROUPS
    return not (is_ours or is_retry(group) or is_dlq(group))


def is_text(name: object) -> bool:
    """Whether a name is a text at all: not every caller has its types checked."""
    return isinstance(name, str)


def topic_fault(topic: str) -> str | None:
    """What is wrong with a topic's name; None when it is fine."""
    is_derived = is_text(topic) and (is_retry(topic) or is_dlq(topic))
    longest = DERIVED_TOPIC_LENGTH_MAX if is_derived else TOPIC_LENGTH_MAX
    return _fault("topic", topic, longest)


def topic_remark(topic: str) -> str | None:
    """What is wrong with a topic's name in the words of genuine brokers; None when it is fine.

    For answers to clients: programs look for these texts.
    """
    if topic_fault(topic) is None:
        return None
    if not topic or topic.isspace():
        return "The specified topic is blank."
    if not _NAME.fullmatch(topic):
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
    """What is wrong with a group's name; None when it is fine."""
    return _fault("group", group, GROUP_LENGTH_MAX)


def check_topic(topic: str) -> str:
    """The topic itself, or UsageError that says what is wrong with its name."""
    if fault := topic_fault(topic):
        raise UsageError(fault)
    return topic


def check_group(group: str) -> str:
    """The group itself, or UsageError that says what is wrong with its name."""
    if fault := group_fault(group):
        raise UsageError(fault)
    return group


def _fault(kind: str, name: str, longest: int) -> str | None:
    if not is_text(name):
        return f"the {kind} name is a text, not {name!r:.100}"
    if not name or name.isspace():
        return f"the {kind} name is blank"
    if not _NAME.fullmatch(name):
        return f"the {kind} name {name!r} may hold only letters, digits, %, |, _ and -"
    if len(name) > longest:
        return f"the {kind} name is {len(name)} characters long, {longest} are allowed: {name!r}"
    return None
