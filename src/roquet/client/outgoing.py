"""Outgoing: a user's message checked and made ready for the wire, before anything is sent."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypedDict

import msgspec

from roquet.client.config import ProducerConfig
from roquet.client.identity import UniqueKeys
from roquet.model import properties as names
from roquet.model.errors import MessageIllegal, UsageError
from roquet.model.flags import ZLIB
from roquet.model.message import Message
from roquet.model.names import NOT_FOR_CLIENTS, check_topic
from roquet.wire.batch import BATCH_ITEM_SIZE_MIN, BatchItem
from roquet.wire.compression import Compression, compress, flagged
from roquet.wire.java import hash_code

ORDER_KEYS_MAX: Final = 8_192
"""Order keys whose hash is remembered: they come again and again."""

_SEPARATORS: Final = (names.NAME_VALUE_SEPARATOR, names.PROPERTY_SEPARATOR)

_order_hash: Final = lru_cache(ORDER_KEYS_MAX)(hash_code)


class MessageFields(TypedDict, total=False):
    """What may be said of a message besides its topic and its body."""

    tag: str | None
    keys: str | Sequence[str]
    order_key: str | None
    properties: Mapping[str, str]
    flag: int


class Outgoing(msgspec.Struct, frozen=True):
    """One message, ready to be sent to any queue of its topic."""

    topic: str
    body: bytes
    properties: str
    message_id: str
    order_hash: int | None
    """Java's hash of the order key; None when the message may go to any queue."""
    flag: int
    born_ms: int
    batch_size: int
    """Bytes that it takes in a batch."""

    def squeezed(self, config: ProducerConfig) -> tuple[bytes, int]:
        """The body as it travels alone, and the system flag that says how."""
        if len(self.body) <= config.compress_over:
            return self.body, 0
        body = compress(self.body, Compression.ZLIB, config.compress_level)
        return body, flagged(0, Compression(ZLIB))

    def batch_item(self) -> BatchItem:
        """The message as one of many: a batch has one system flag, so the body stays as it is."""
        properties = self.properties.encode("utf-8", "surrogatepass")
        return BatchItem(self.flag, self.body, properties)


def message_of(message: Message | str, body: bytes | None, fields: MessageFields) -> Message:
    """The message that the arguments of a send make."""
    if isinstance(message, Message):
        if body is not None or fields:
            raise UsageError("a Message is sent as it is: give its parts when it is made")
        return message
    if body is None:
        raise UsageError("a body is wanted: send(topic, body), or send(Message(...))")
    given: dict[str, Any] = {**fields}
    keys = given.pop("keys", ())
    given["keys"] = (keys,) if isinstance(keys, str) else tuple(keys)
    return Message(message, body, **given)


class Preparer:
    """Makes messages ready: each gets its id, and none leaves over a limit."""

    def __init__(self, keys: UniqueKeys, config: ProducerConfig) -> None:
        self._keys = keys
        self._config = config
        self._topics: set[str] = set()
        """Those whose names are fine."""

    def prepare(self, message: Message, now_ms: int) -> Outgoing:
        """The message checked; MessageIllegal or UsageError say what is wrong with it."""
        if message.topic not in self._topics:
            self._topics.add(_checked_topic(message.topic))
        self._check_body(message.body)
        message_id = self._keys.make(now_ms)
        properties = _properties(message, message_id)
        order_key = message.order_key
        return Outgoing(
            message.topic,
            message.body,
            properties,
            message_id,
            None if order_key is None else _order_hash(order_key),
            message.flag,
            now_ms,
            BATCH_ITEM_SIZE_MIN + len(message.body) + _checked_size(properties),
        )

    def _check_body(self, body: bytes) -> None:
        if type(body) is not bytes:
            raise UsageError(f"a body is bytes, not {type(body).__name__}: encode it")
        if not body:
            raise MessageIllegal("the body is empty: brokers refuse that")
        if len(body) > self._config.body_size_max:
            raise MessageIllegal(
                f"a body of {len(body)} bytes is over the limit of {self._config.body_size_max}"
            )


def _checked_topic(topic: str) -> str:
    if check_topic(topic) in NOT_FOR_CLIENTS:
        raise UsageError(f"topic {topic} is the broker's own: clients may not send to it")
    return topic


def _properties(message: Message, message_id: str) -> str:
    """The text of all properties: the system's and the user's."""
    text, count = f"{names.UNIQUE_KEY}\x01{message_id}\x02", 1
    if message.keys:
        text += f"{names.KEYS}\x01{_joined(message.keys)}\x02"
        count += 1
    if message.tag:
        text += f"{names.TAGS}\x01{message.tag}\x02"
        count += 1
    if message.order_key:
        text += f"{names.SHARDING_KEY}\x01{message.order_key}\x02"
        count += 1
    if message.properties:
        text += _users(message.properties)
        count += len(message.properties)
    if text.count("\x01") != count or text.count("\x02") != count:
        raise MessageIllegal(
            f"{_culprit(message)} holds U+0001 or U+0002: they separate properties"
        )
    return text


def _checked_size(properties: str) -> int:
    """Bytes of the properties' text."""
    ascii_only = properties.isascii()
    size = len(properties) if ascii_only else len(properties.encode("utf-8", "surrogatepass"))
    if size > names.PROPERTIES_SIZE_MAX:
        raise MessageIllegal(
            f"properties of {size} bytes are over the limit of {names.PROPERTIES_SIZE_MAX}"
        )
    return size


def _joined(keys: Sequence[str]) -> str:
    if isinstance(keys, str):
        raise UsageError(f"keys are a tuple of texts: ({keys!r},)")
    for key in keys:
        if not key or names.KEYS_SEPARATOR in key:
            raise MessageIllegal(f"key {key!r} is empty or holds a blank: blanks separate keys")
    return names.KEYS_SEPARATOR.join(keys)


def _users(properties: Mapping[str, str]) -> str:
    for name, value in properties.items():
        if name in names.RESERVED:
            raise MessageIllegal(f"property {name} belongs to the system: choose another name")
        if not name or not value:
            raise MessageIllegal(f"property {name!r} is empty: readers would not see it")
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def _culprit(message: Message) -> str:
    """Which part of a message holds a separator."""
    parts = {
        "a key": " ".join(message.keys),
        "the tag": message.tag or "",
        "the order key": message.order_key or "",
        **{f"property {name!r}": name + value for name, value in message.properties.items()},
    }
    return next(part for part, text in parts.items() if any(s in text for s in _SEPARATORS))
