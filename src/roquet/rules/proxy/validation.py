"""Limits of requests to the proxy: names, messages, times; a request over one is refused.

Sources: GrpcValidator and ProxyConfig of Apache RocketMQ 5.5.0. The order of the checks is its own,
since a client gets the code of the first one.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from roquet.model import properties as names
from roquet.model.names import (
    BROKER_ONLY_TOPICS,
    GROUP_LENGTH_MAX,
    TOPIC_LENGTH_MAX,
    is_system_group,
)
from roquet.rules.proxy.status import ProxyRefusal, StatusCode

SYSTEM_TOPICS: Final = BROKER_ONLY_TOPICS | {
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "BenchmarkTest",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "RMQ_SYS_TRACE_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "CHECKPOINT_TOPIC",
}
"""Topics of the brokers themselves, which clients may not name."""

SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

BODY_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes of a message's body, the genuine broker's default."""

PROPERTIES_MAX: Final = 128
"""User properties of one message."""

PROPERTIES_SIZE_MAX: Final = 16 * 1024
"""Bytes of a message's user properties, tag and keys, in UTF-8."""

MESSAGE_GROUP_SIZE_MAX: Final = 63
"""Bytes of a message group in UTF-8."""

DELAY_MAX_MS: Final = 24 * 3_600_000
"""Longest time until a delivery."""

RECOVERY_MAX_S: Final = 3_600
"""Longest time before a broker may ask about a transaction that its client asks for."""

INVISIBLE_MIN_MS: Final = 10_000
"""Shortest invisible time of a receive without renewal."""

INVISIBLE_MAX_MS: Final = 12 * 3_600_000

POLLING_MIN_MS: Final = 5_000
POLLING_MAX_MS: Final = 20_000
POLLING_MARGIN_MS: Final = 300
"""Time of the answer on its way: the Rust client gives up when the wait it asks for is over."""

BATCH_MAX: Final = 32
"""Messages of one receive."""

CLIENT_PROPERTIES_MAX: Final = 32
CLIENT_VALUE_LENGTH_MAX: Final = 256
CLIENT_PROPERTIES_SIZE_MAX: Final = 4 * 1024
"""Entries of what a client says of itself, characters of a value, and bytes of all in UTF-8."""

LEGAL: Final = "only letters, digits, %, |, _ and - are legal"

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_CLIENT_KEY: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_.-]{0,63}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_topic(topic: str) -> str:
    """Return a topic's name; raises ProxyRefusal for one that clients may not use."""
    code = StatusCode.ILLEGAL_TOPIC
    if not topic or topic.isspace():
        raise ProxyRefusal(code, "the topic's name is missing")
    if not _NAME.fullmatch(topic):
        raise ProxyRefusal(code, f"topic {topic!r:.200}: {LEGAL}")
    if len(topic) > TOPIC_LENGTH_MAX:
        raise ProxyRefusal(code, f"a topic's name has {TOPIC_LENGTH_MAX} characters at most")
    if topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX):
        raise ProxyRefusal(code, f"topic {topic} belongs to the brokers: clients may not use it")
    return topic


def check_group(group: str) -> str:
    """Return a group's name; raises ProxyRefusal for one that clients may not use."""
    code = StatusCode.ILLEGAL_CONSUMER_GROUP
    if not group or group.isspace():
        raise ProxyRefusal(code, "the consumer group's name is missing")
    if not _NAME.fullmatch(group):
        raise ProxyRefusal(code, f"group {group!r:.200}: {LEGAL}")
    if len(group) > GROUP_LENGTH_MAX:
        raise ProxyRefusal(code, f"a group's name has {GROUP_LENGTH_MAX} characters at most")
    if is_system_group(group):
        raise ProxyRefusal(code, f"group {group} belongs to RocketMQ: clients may not use it")
    return group


def check_body(size: int) -> None:
    """Raise ProxyRefusal for a body of a size, in bytes, that brokers do not take."""
    if size == 0:
        raise ProxyRefusal(StatusCode.MESSAGE_BODY_EMPTY, "the message has no body")
    if size > BODY_SIZE_MAX:
        raise ProxyRefusal(
            StatusCode.MESSAGE_BODY_TOO_LARGE,
            f"a body of {size} bytes is over the limit of {BODY_SIZE_MAX}",
        )


def check_properties(properties: Mapping[str, str], tag: str, keys: Sequence[str]) -> None:
    """Raise ProxyRefusal for user properties, a tag or keys over a limit or with illegal text."""
    if len(properties) > PROPERTIES_MAX:
        raise ProxyRefusal(
            StatusCode.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{len(properties)} properties are over the limit of {PROPERTIES_MAX}",
        )
    size = len(tag.encode()) + sum(len(key.encode()) for key in keys)
    for name, value in properties.items():
        _check_property(name, value)
        size += len(name.encode()) + len(value.encode())
    for key in keys:
        _check_text(key, "a key", StatusCode.ILLEGAL_MESSAGE_KEY)
    if size > PROPERTIES_SIZE_MAX:
        raise ProxyRefusal(
            StatusCode.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties, tag and keys of {size} bytes are over the limit of {PROPERTIES_SIZE_MAX}",
        )
    if tag:
        _check_text(tag, "the tag", StatusCode.ILLEGAL_MESSAGE_TAG)
        if "|" in tag:
            raise ProxyRefusal(StatusCode.ILLEGAL_MESSAGE_TAG, "a tag may not hold |")


def _check_property(name: str, value: str) -> None:
    code = StatusCode.ILLEGAL_MESSAGE_PROPERTY_KEY
    if name in names.RESERVED:
        raise ProxyRefusal(code, f"property {name} belongs to the system: choose another name")
    if _CONTROL.search(name) or _CONTROL.search(value):
        raise ProxyRefusal(code, f"property {name!r:.100} holds a control character")


def _check_text(text: str, what: str, code: StatusCode) -> None:
    if not text or text.isspace():
        raise ProxyRefusal(code, f"{what} is blank")
    if _CONTROL.search(text):
        raise ProxyRefusal(code, f"{what} {text!r:.100} holds a control character")


def check_message_id(message_id: str) -> str:
    """Return a message's id; raises ProxyRefusal for a blank or illegal one."""
    _check_text(message_id, "the message's id", StatusCode.ILLEGAL_MESSAGE_ID)
    return message_id


def check_message_group(message_group: str) -> str:
    """Return a message group; raises ProxyRefusal for a blank or too long one."""
    code = StatusCode.ILLEGAL_MESSAGE_GROUP
    _check_text(message_group, "the message group", code)
    if len(message_group.encode()) > MESSAGE_GROUP_SIZE_MAX:
        raise ProxyRefusal(code, f"a message group has {MESSAGE_GROUP_SIZE_MAX} bytes at most")
    return message_group


def check_priority(priority: int) -> int:
    """Return a priority; raises ProxyRefusal for one below 0, the lowest."""
    if priority < 0:
        raise ProxyRefusal(StatusCode.BAD_REQUEST, f"priority {priority}: 0 is the lowest")
    return priority


def check_delivery_ms(deliver_ms: int, now_ms: int) -> int:
    """Return a time of delivery, ms since the epoch; raises ProxyRefusal if too far ahead."""
    if deliver_ms > now_ms + DELAY_MAX_MS:
        raise ProxyRefusal(
            StatusCode.ILLEGAL_DELIVERY_TIME,
            f"a message is delivered within {DELAY_MAX_MS // 3_600_000} hours at most",
        )
    return deliver_ms


def check_recovery_s(recovery_s: int) -> int:
    """Return how long a transaction may rest, in s; raises ProxyRefusal if out of bounds."""
    if not 0 <= recovery_s <= RECOVERY_MAX_S:
        raise ProxyRefusal(
            StatusCode.BAD_REQUEST, f"a transaction may rest for {RECOVERY_MAX_S} s at most"
        )
    return recovery_s


def check_client_properties(properties: Mapping[str, str]) -> None:
    """Raise ProxyRefusal for what a client says of itself, if it is over a limit.

    Sources: comments of `Settings` and of the code in definition.proto. Names with the reserved
    prefix `rocketmq.` are taken: those of official clients cannot be told from an application's.
    """
    code = StatusCode.INVALID_CLIENT_PROPERTIES
    if len(properties) > CLIENT_PROPERTIES_MAX:
        text = f"{len(properties)} client properties are over the limit of {CLIENT_PROPERTIES_MAX}"
        raise ProxyRefusal(code, text)
    for key, value in properties.items():
        if not _CLIENT_KEY.fullmatch(key):
            text = "a name has 1 to 64 letters, digits, _, . and -, a letter first"
            raise ProxyRefusal(code, f"client property {key!r:.100}: {text}")
        if len(value) > CLIENT_VALUE_LENGTH_MAX:
            text = f"{len(value)} characters are over the limit of {CLIENT_VALUE_LENGTH_MAX}"
            raise ProxyRefusal(code, f"client property {key}: {text}")
    size = sum(len(text.encode()) for pair in properties.items() for text in pair)
    if size > CLIENT_PROPERTIES_SIZE_MAX:
        text = f"client properties of {size} bytes are over the limit of"
        raise ProxyRefusal(code, f"{text} {CLIENT_PROPERTIES_SIZE_MAX}")


def check_invisible_ms(invisible_ms: int, least_ms: int = 0) -> int:
    """Return an invisible time; raises ProxyRefusal for one out of bounds."""
    if not least_ms <= invisible_ms <= INVISIBLE_MAX_MS:
        raise ProxyRefusal(
            StatusCode.ILLEGAL_INVISIBLE_TIME,
            f"an invisible time of {invisible_ms} ms: {least_ms} to {INVISIBLE_MAX_MS} are legal",
        )
    return invisible_ms


def check_batch(count: int) -> int:
    """Return the most messages that a receive gets; raises ProxyRefusal where it asks for none."""
    if count < 1:
        text = f"batch_size {count}: a receive asks for at least 1"
        raise ProxyRefusal(StatusCode.BAD_REQUEST, text)
    return min(count, BATCH_MAX)


def polling_ms(asked_ms: int | None, left_ms: int | None, request_timeout_ms: int) -> int:
    """Time that a receive waits for messages, in ms.

    `asked_ms` is the request's own time, `left_ms` what is left until its deadline; None where
    there is none. Raises ProxyRefusal where the deadline is too near.
    """
    if left_ms is None:
        left_ms = POLLING_MAX_MS + request_timeout_ms
    wanted = left_ms - request_timeout_ms // 2 if asked_ms is None else asked_ms
    wanted = min(max(wanted, POLLING_MIN_MS), POLLING_MAX_MS)
    if wanted + POLLING_MARGIN_MS <= left_ms:
        return wanted
    if left_ms >= POLLING_MIN_MS:
        return max(left_ms - POLLING_MARGIN_MS, POLLING_MIN_MS)
    raise ProxyRefusal(
        StatusCode.ILLEGAL_POLLING_TIME,
        f"the deadline is {left_ms} ms away: a receive waits for {POLLING_MIN_MS} ms at least",
    )
