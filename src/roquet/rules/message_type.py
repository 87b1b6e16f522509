"""Message types: what a message is, by its properties, and which types a topic takes.

A topic names its type in the attribute `message.type`; without one it takes NORMAL messages.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from roquet.model import properties as names
from roquet.model.names import is_dlq, is_retry

MIXED: Final = "MIXED"
"""Topics of this type take messages of every type."""


class MessageType(IntEnum):
    """Type of a message; the numbers are those of `MessageType` in definition.proto."""

    MESSAGE_TYPE_UNSPECIFIED = 0
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    LITE = 5
    PRIORITY = 6


_DELAYING: Final = frozenset(
    {names.DELAY, names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS}
)

_OF_MIXED: Final = (
    MessageType.NORMAL,
    MessageType.FIFO,
    MessageType.DELAY,
    MessageType.TRANSACTION,
)

ALL_TYPES: Final = (*_OF_MIXED, MessageType.PRIORITY)
"""Types of messages; LITE ones are not served."""


def message_type(properties: Mapping[str, str]) -> MessageType:
    """Type of a message by its properties, whatever its sender calls it."""
    if properties.get(names.TRANSACTION_PREPARED, "").lower() == "true":
        return MessageType.TRANSACTION
    if not _DELAYING.isdisjoint(properties):
        return MessageType.DELAY
    if names.SHARDING_KEY in properties:
        return MessageType.FIFO
    if names.PRIORITY in properties:
        return MessageType.PRIORITY
    return MessageType.NORMAL


def accepted_types(topic_type: str | None) -> Sequence[MessageType]:
    """Types that a topic takes, by its attribute; None: the topic has no attribute."""
    if topic_type == MIXED:
        return _OF_MIXED
    word = topic_type or MessageType.NORMAL.name
    known = MessageType.__members__.get(word, MessageType.MESSAGE_TYPE_UNSPECIFIED)
    return (known,)


def type_fault(kind: MessageType, topic: str, topic_type: str | None) -> str | None:
    """Why a topic does not take messages of a type, and the command that helps; None if it does."""
    if is_retry(topic) or is_dlq(topic) or topic_type == MIXED:
        return None
    accepted = accepted_types(topic_type)
    if kind in accepted:
        return None
    return (
        f"topic {topic} takes {accepted[0].name} messages, this is a {kind.name} message: create "
        f"a topic for it, `roquet topic create NAME --attribute +message.type={kind.name}`"
    )
