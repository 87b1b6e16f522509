"""Subscription, ConsumerData, ProducerData: who listens to what."""

from enum import Enum
from typing import Final

import msgspec

ALL: Final = "*"
"""The expression that takes every message."""

TAG: Final = "TAG"
SQL92: Final = "SQL92"


class ConsumeType(Enum):
    """How a consumer gets its messages; members stand in the order of Java's ordinals."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(Enum):
    """Whether a group's members share the messages or each gets all; in Java's order."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"
    LITE_SELECTIVE = "LITE_SELECTIVE"


class ConsumeFromWhere(Enum):
    """Where a group without progress begins; in Java's order."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class Subscription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One topic and the messages of it that a group wants."""

    topic: str = ""
    """Empty where a peer left it out, as Java may where an expression alone is checked."""
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
    """A consumer group that a client belongs to, and what it listens to."""

    group_name: str = ""
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[Subscription] = []
    unit_mode: bool = False
    strategy: str | None = None
    """Ours, for operators: how the member shares the queues. Genuine brokers pass over it."""


class HeartbeatData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one client says of itself to each broker."""

    client_id: str = msgspec.field(default="", name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
    without_sub: bool = False
