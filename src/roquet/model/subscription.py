"""Subscription, ConsumerData, ProducerData: which groups a client belongs to and subscribes."""

from enum import Enum
from typing import Final

import msgspec

ALL: Final = "*"
"""Expression that matches every message."""

TAG: Final = "TAG"
SQL92: Final = "SQL92"


class ConsumeType(Enum):
    """How a consumer gets its messages; members are in the order of Java's ordinals."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(Enum):
    """Whether a group's members share the messages or each gets all of them; in Java's order."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"
    LITE_SELECTIVE = "LITE_SELECTIVE"


class ConsumeFromWhere(Enum):
    """Where a group without progress starts; in Java's order."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class Subscription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A group's subscription to one topic, and the filter of its messages."""

    topic: str = ""
    """Empty if a peer left it out, as Java may in a request that checks only the expression."""
    sub_string: str = ALL
    tags_set: list[str] = []
    code_set: list[int] = []
    sub_version: int = 0
    expression_type: str = TAG
    class_filter_mode: bool = False


class ProducerData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A producer group that a client belongs to."""

    group_name: str = ""


class ConsumerData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A consumer group that a client belongs to, and its subscriptions."""

    group_name: str = ""
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[Subscription] = []
    unit_mode: bool = False
    strategy: str | None = None
    """Ours, for operators: the member's allocation strategy. Apache's brokers ignore it."""


class HeartbeatData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Content of a heartbeat: the groups of one client."""

    client_id: str = msgspec.field(default="", name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
    without_sub: bool = False
