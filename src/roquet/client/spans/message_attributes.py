"""Message attributes: what spans show of messages and of requests for them."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from roquet.model import properties as names
from roquet.rules.message_type import message_type

NUMBER_LENGTH_MAX: Final = 18
"""Digits of a number in a message's properties, which anybody may have written; 64 bits hold it."""


class MessageRequest(NamedTuple):
    """A pull or a pop."""

    topic: str
    broker: str
    is_users: bool = False
    """Whether the application made it; else a task of the background did."""


class SpannedMessage(Protocol):
    """The parts of a received message that its spans show."""

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties."""

    @property
    def message_id(self) -> str:
        """The producer's id of the message."""

    @property
    def topic(self) -> str:
        """The topic it was sent to."""

    @property
    def broker_name(self) -> str:
        """The broker that stored it."""

    @property
    def queue_id(self) -> int:
        """The id of its queue at that broker."""


class HandledMessage(SpannedMessage, Protocol):
    """The parts of a message that the span of its handler shows."""

    @property
    def stored_body(self) -> tuple[bytes, int]:
        """The body as stored, and the flags of its compression."""


def encodable(value: Any) -> Any:
    """A value, or list of values, whose texts have no lone surrogates, as a message's may have.

    An exporter could encode none of the spans that it sends together with such a one.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return [encodable(each) for each in value] if isinstance(value, list) else value


def sent_attributes(properties: Mapping[str, str], body_size: int) -> dict[str, Any]:
    """The attributes of a message that is sent, by its properties and the bytes of its body."""
    attributes = property_attributes(properties)
    attributes["messaging.message.id"] = properties.get(names.UNIQUE_KEY, "")
    attributes["messaging.message.body.size"] = body_size
    attributes["messaging.rocketmq.message.type"] = message_type(properties).name.lower()
    return attributes


def property_attributes(properties: Mapping[str, str]) -> dict[str, Any]:
    """The attributes of a message that stand in its properties."""
    attributes: dict[str, Any] = {}
    if tag := properties.get(names.TAGS):
        attributes["messaging.rocketmq.message.tag"] = tag
    if keys := properties.get(names.KEYS):
        attributes["messaging.rocketmq.message.keys"] = list(names.split_keys(keys))
    if order_key := properties.get(names.SHARDING_KEY):
        attributes["messaging.rocketmq.message.group"] = order_key
    for name, attribute in (
        (names.DELAY, "messaging.rocketmq.message.delay_time_level"),
        (names.TIMER_DELIVER_MS, "messaging.rocketmq.message.delivery_timestamp"),
    ):
        value = properties.get(name, "")
        if value.isdecimal() and len(value) <= NUMBER_LENGTH_MAX:
            attributes[attribute] = int(value)
    return attributes
