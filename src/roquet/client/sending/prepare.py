"""Prepared messages: a user's message checked and encoded for the wire, before anything is sent."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypedDict

import msgspec

from roquet.client.arguments import INT32_MAX, check_number, check_time
from roquet.client.config import ProducerConfig, Selector
from roquet.client.connection.identity import MessageIdGenerator
from roquet.client.sending.selectors import QueueSelection
from roquet.model import properties as names
from roquet.model.errors import MessageIllegal, UsageError
from roquet.model.message import Message, V_co
from roquet.model.names import BROKER_ONLY_TOPICS, check_topic, is_retry, is_text
from roquet.model.namespaces import wrap
from roquet.model.settings import suggest
from roquet.rules.consumption.priority import PRIORITY_MAX
from roquet.rules.tag_filter import is_single_tag
from roquet.wire.java_hash import hash_code
from roquet.wire.records.batch import BATCH_ITEM_SIZE_MIN
from roquet.wire.records.compression import compress, with_compression

ORDER_KEYS_MAX: Final = 8_192
"""Size of the cache of order key hashes: keys repeat."""

NO_LEVEL: Final = -1
"""A delay level that means no delay, as 0 does."""

TAGS_MAX: Final = 1_024
"""Size of the cache of checked tags: tags repeat."""

_SEPARATORS: Final = (names.NAME_VALUE_SEPARATOR, names.PROPERTY_SEPARATOR)

_can_be_named: Final = lru_cache(TAGS_MAX)(is_single_tag)

_order_hash: Final = lru_cache(ORDER_KEYS_MAX)(hash_code)


class MessageFields(TypedDict, total=False):
    """Fields of a message besides its topic and body, as keywords of the methods that send."""

    tag: str | None
    """One word to filter by; subscriptions name those that they take."""
    keys: str | Sequence[str]
    """Texts to find the message by, as an order's number; Kafka's key is `order_key`."""
    order_key: str | None
    """Messages with the same order key go to the same queue, and stay in order."""
    properties: Mapping[str, str]
    """Further texts by name, which other libraries call headers; SQL filters read them."""
    flag: int
    """A number that brokers hand on."""
    delay_level: int
    """Delivered after one of the broker's configured delays: 1 is 1 s, 18 is 2 h."""
    delay: timedelta | None
    """Delivered after this time."""
    deliver_at: datetime | None
    """Delivered at this time, which must have a time zone."""
    priority: int | None
    """From 0, the lowest: pop consumers get higher ones first, on a topic of type PRIORITY."""


_FIELDS: Final = MessageFields.__optional_keys__

_NAMES_ELSEWHERE: Final = {
    "value": "; it is the `body`, the second argument",
    "key": "; did you mean 'keys', or 'order_key', by which Kafka's key chooses the partition?",
    "headers": "; did you mean 'properties'?",
}
"""Names that other libraries have for the parts of a message: the error suggests ours."""


class PreparedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that can be sent to any queue of its topic."""

    topic: str
    body: bytes
    properties: str
    message_id: str
    order_hash: int | None
    """Java's hash of the order key; None when the message may go to any queue."""
    flag: int
    born_ms: int
    batch_size: int
    """Size as part of a batch, in bytes."""
    is_unbatchable: bool = False
    """Whether it cannot be part of a batch: it is delayed, has a priority, or goes to a retry
    topic."""
    selection: QueueSelection | None = None
    """The selector that chooses the queue; None leaves it to the order key or round robin."""
    sys_flag: int = 0
    """Says how the body is compressed already; 0 for a body as it is."""
    message: Message[Any] | None = None
    """As it was given, with its value; None where no context is around its send."""

    @property
    def is_bound(self) -> bool:
        """Whether all attempts use one queue, so that no other message is overtaken."""
        if self.selection is not None:
            return self.selection.is_bound
        return self.order_hash is not None

    def with_context(self, context: Mapping[str, str]) -> "PreparedMessage":
        """A copy with properties that carry a trace's context; itself if they do not fit."""
        added = "".join([f"{name}\x01{value}\x02" for name, value in context.items()])
        text = self.properties + added
        size = len(text.encode("utf-8", "surrogatepass"))
        if not added or size > names.PROPERTIES_SIZE_MAX:
            return self
        batch_size = BATCH_ITEM_SIZE_MIN + len(self.body) + size
        return msgspec.structs.replace(self, properties=text, batch_size=batch_size)

    def compressed(self, config: ProducerConfig) -> tuple[bytes, int]:
        """The body as sent outside of batches, compressed if that helps, and its system flag."""
        if self.sys_flag or len(self.body) < config.compress_from:
            return self.body, self.sys_flag
        body = compress(self.body, config.compression, config.compress_level)
        if len(body) >= len(self.body):  # incompressible
            return self.body, 0
        return body, with_compression(0, config.compression)


def build_message(
    message: Message[V_co] | str,
    body: V_co | None,
    fields: MessageFields,
) -> Message[V_co]:
    """Build a Message from the arguments of a send."""
    if isinstance(message, Message):
        if body is not None or fields:
            raise UsageError("a Message is sent as it is: give its parts when it is made")
        return message
    if not isinstance(message, str):
        raise UsageError(
            f"a message is a Message, or a topic and a body, not {message!r:.100}; "
            "send_batch and send_many take several"
        )
    if body is None:
        _check_names(fields)
        raise UsageError("the body is missing: send(topic, body), or send(Message(...))")
    try:
        return Message(message, body, **fields)
    except TypeError:
        _check_names(fields)
        raise


def _check_names(fields: MessageFields) -> None:
    for name in fields.keys() - _FIELDS:
        hint = _NAMES_ELSEWHERE.get(name) or suggest(name, _FIELDS)
        known = ", ".join(sorted(_FIELDS))
        raise UsageError(f"{name}: a message has no such field{hint}; it has {known}") from None


def check_messages(messages: object) -> None:
    """Raise UsageError unless several messages were given; each is checked when it is prepared."""
    if not isinstance(messages, Iterable) or isinstance(messages, str | bytes | Mapping):
        raise UsageError(f"messages: several Message, as [Message(...)], not {messages!r:.100}")


class MessagePreparer:
    """Checks messages, and gives each its id."""

    def __init__(self, keys: MessageIdGenerator, config: ProducerConfig) -> None:
        self._keys = keys
        self._selector = config.selector
        self._body_size_max = config.body_size_max
        self._namespace = config.namespace
        self._topics: dict[str, tuple[str, bool]] = {}
        """Checked topics: the full name, and whether messages for it cannot be batched."""

    def prepare(
        self, message: Message, now_ms: int, selector: Selector | None = None
    ) -> PreparedMessage:
        """Check and encode a message; MessageIllegal or UsageError say what is wrong with it."""
        if type(message) is not Message or type(message.topic) is not str:
            check_message(message)
        body, order_key = message.body, message.order_key
        topic, is_unbatchable = self._topics.get(message.topic) or self._check_topic(message.topic)
        if type(body) is not bytes or not 0 < len(body) <= self._body_size_max:
            raise _wrong_body(body, self._body_size_max)
        message_id = self._keys.make(now_ms)
        delayed = bool(message.delay_level or message.delay or message.deliver_at)
        delayed = delayed and _is_delayed(message)
        properties = _properties(message, message_id, delayed=delayed)
        size = len(
            properties if properties.isascii() else properties.encode("utf-8", "surrogatepass")
        )
        if size > names.PROPERTIES_SIZE_MAX:
            raise MessageIllegal(
                f"properties of {size} bytes are over the limit of {names.PROPERTIES_SIZE_MAX}"
            )
        if message.flag != 0:
            check_number(message.flag, "flag", -INT32_MAX - 1, INT32_MAX)
        if selector is None and order_key is None:
            selector = self._selector
        elif selector is not None and not callable(selector):
            raise UsageError(f"a selector is a function, not {selector!r:.100}")
        return PreparedMessage(
            topic,
            body,
            properties,
            message_id,
            None if order_key is None else _order_hash(order_key),
            message.flag,
            now_ms,
            BATCH_ITEM_SIZE_MIN + len(body) + size,
            is_unbatchable or delayed or message.priority is not None,
            None if selector is None else QueueSelection(selector, message),
        )

    def _check_topic(self, topic: str) -> tuple[str, bool]:
        full_name = wrap(self._namespace, topic)
        checked = self._topics[topic] = full_name, is_retry(_checked_topic(full_name))
        return checked


def _checked_topic(topic: str) -> str:
    if check_topic(topic) in BROKER_ONLY_TOPICS:
        raise UsageError(f"topic {topic} is the broker's own: clients may not send to it")
    return topic


def _properties(message: Message, message_id: str, *, delayed: bool) -> str:
    """Encode all properties: the system's and the user's."""
    text, count = f"{names.UNIQUE_KEY}\x01{message_id}\x02", 1
    if message.keys:
        text += f"{names.KEYS}\x01{_join_keys(message.keys)}\x02"
        count += 1
    if message.tag:
        text += f"{names.TAGS}\x01{_checked_tag(message.tag)}\x02"
        count += 1
    if message.order_key is not None:
        text += f"{names.SHARDING_KEY}\x01{_checked_order_key(message.order_key)}\x02"
        count += 1
    if delayed:
        text += _delay(message)
        count += 1
    if message.priority is not None:
        text += f"{names.PRIORITY}\x01{_checked_priority(message, delayed=delayed)}\x02"
        count += 1
    if message.properties:
        text += _user_properties(message.properties)
        count += len(message.properties)
    # The generated id needs no check: most messages have no other property.
    if count > 1 and (text.count("\x01") != count or text.count("\x02") != count):
        raise MessageIllegal(
            f"{_culprit(message)} holds U+0001 or U+0002: they separate properties"
        )
    return text


def check_message(message: object) -> None:
    """Raise UsageError unless this is a Message, of a subclass perhaps, whose topic is a text."""
    if not isinstance(message, Message):
        raise UsageError(f"a message is a Message(topic, body), not {message!r:.100}")
    if not is_text(message.topic):
        raise UsageError(f"the topic name is a text, not {message.topic!r:.100}")


def _wrong_body(body: object, size_max: int) -> UsageError | MessageIllegal:
    if type(body) is not bytes:
        return UsageError(f"a body is bytes, not {type(body).__name__}: encode it")
    if not body:
        return MessageIllegal("the body is empty: brokers refuse that")
    return MessageIllegal(f"a body of {len(body)} bytes is over the limit of {size_max}")


def _is_delayed(message: Message) -> bool:
    """Whether the message is delayed: a level of -1 means it is not, as in Java."""
    return bool(message.delay_level != NO_LEVEL or message.delay or message.deliver_at)


def _delay(message: Message) -> str:
    """Encode the delay as one of three properties, as clients of version 5 do."""
    level = 0 if message.delay_level == NO_LEVEL else message.delay_level
    if sum(map(bool, (level, message.delay, message.deliver_at))) > 1:
        raise MessageIllegal("delay_level, delay and deliver_at exclude each other: choose one")
    if message.delay:
        return f"{names.TIMER_DELAY_MS}\x01{_delay_ms(message.delay)}\x02"
    if message.deliver_at:
        return f"{names.TIMER_DELIVER_MS}\x01{_epoch_ms(message.deliver_at)}\x02"
    if type(level) is not int or level < 0:
        raise MessageIllegal(f"a delay level is an int from 0, not {level!r}")
    return f"{names.DELAY}\x01{level}\x02"


def _delay_ms(delay: timedelta) -> int:
    if not isinstance(delay, timedelta):
        raise UsageError(f"a delay is a timedelta, not {delay!r}; a level is given as delay_level")
    if delay < timedelta(0):
        raise MessageIllegal(f"a delay of {delay} would have to begin in the past")
    whole_ms, rest = divmod(delay, timedelta(milliseconds=1))
    return whole_ms + bool(rest)  # rounded up: never delivered too early


def _epoch_ms(at: datetime) -> int:
    if not isinstance(at, datetime):
        raise UsageError(f"deliver_at is a datetime, not {at!r}")
    return check_time(at, "deliver_at")


def _checked_order_key(key: str) -> str:
    if not isinstance(key, str):
        raise UsageError(f"an order key is a str, not {key!r}")
    if not key:
        raise MessageIllegal(
            "the order key is empty: all such messages would share one queue; "
            "leave it out (None) when any queue will do"
        )
    return key


def _checked_priority(message: Message, *, delayed: bool) -> int:
    priority = message.priority
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        raise UsageError(f"a priority is an int from 0 to {PRIORITY_MAX}, not {priority!r:.100}")
    if delayed or message.order_key is not None:
        raise MessageIllegal(
            "priority excludes an order key and a delay: brokers would drop the priority"
        )
    return priority


def _join_keys(keys: Sequence[str]) -> str:
    try:
        joined = names.KEYS_SEPARATOR.join(keys)
    except TypeError:
        raise UsageError(f"keys are str, as ('A-17', 'A-18'), not {keys!r:.100}") from None
    for key in keys:
        if not key or names.KEYS_SEPARATOR in key:
            raise MessageIllegal(f"key {key!r} is empty or holds a blank: blanks separate keys")
    return joined


def _checked_tag(tag: str) -> str:
    """Return the tag; MessageIllegal when no subscription could name it."""
    if not is_text(tag):
        raise UsageError(f"a tag is a str, not {tag!r}")
    if not _can_be_named(tag):
        raise MessageIllegal(
            f"nobody can subscribe to the tag {tag!r}: `*` means all tags, `||` separates "
            "tags, and blanks around a tag are dropped"
        )
    return tag


def _user_properties(properties: Mapping[str, str]) -> str:
    if type(properties) is not dict and not isinstance(properties, Mapping):
        raise UsageError(f"properties are a dict of str, not {properties!r:.100}")
    for name, value in properties.items():
        if type(name) is not str or type(value) is not str:
            raise UsageError(f"property names and values are str: {name!r} is {value!r:.100}")
        if name in names.RESERVED:
            raise MessageIllegal(f"property {name} belongs to the system: choose another name")
        if not name or not value:
            raise MessageIllegal(f"property {name!r} is empty: readers would not see it")
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def _culprit(message: Message) -> str:
    """The part of a message that holds a separator."""
    parts = {
        "a key": " ".join(message.keys),
        "the tag": message.tag or "",
        "the order key": message.order_key or "",
        **{f"property {name!r}": name + value for name, value in message.properties.items()},
    }
    return next(part for part, text in parts.items() if any(s in text for s in _SEPARATORS))
