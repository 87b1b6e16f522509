"""Messages of RocketMQ 5 and ours, each made from the other.

SendMessage   ── Message ──▶ PreparedMessage ──▶ brokers
ReceiveMessage ◀── Message ── stored record  ◀── brokers
"""

from collections.abc import Mapping, Sequence
from hashlib import md5
from typing import Final, Protocol

from google.protobuf.timestamp_pb2 import Timestamp

from roquet.client.sending.prepare import PreparedMessage
from roquet.client.sending.selectors import QueueSelection
from roquet.model import properties as names
from roquet.model.flags import SysFlag
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.model.subscription import SQL92, TAG
from roquet.proxy.caller import Caller
from roquet.proxy.protos import definition_pb2 as pb
from roquet.rules.message_type import MessageType, message_type
from roquet.rules.proxy import validation
from roquet.rules.proxy.message_group import queue_index
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.wire.java_hash import hash_code
from roquet.wire.records.batch import BATCH_ITEM_SIZE_MIN
from roquet.wire.records.property_text import encode_properties

TIME_MAX_MS: Final = 253_402_300_799_999
"""The last ms of the year 9999, where protobuf's times end."""

INT_MAX: Final = 2**31 - 1


class ReadableMessage(Protocol):
    """A stored message, as a consumer or a transaction's check reads it."""

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The producer's keys."""

    @property
    def message_id(self) -> str:
        """The producer's id, else the broker's."""

    @property
    def born_host(self) -> str:
        """Address of the producer."""

    @property
    def store_host(self) -> str:
        """Address of the broker."""

    @property
    def born_ms(self) -> int:
        """Time of the send."""

    @property
    def stored_ms(self) -> int:
        """Time of storage."""

    @property
    def queue_id(self) -> int:
        """Its queue on the broker."""

    @property
    def queue_offset(self) -> int:
        """Its offset in the queue."""

    @property
    def reconsume_times(self) -> int:
        """Number of earlier tries."""


def to_properties(
    message: pb.Message, topic: str, caller: Caller, now_ms: int
) -> Mapping[str, str]:
    """The properties that brokers keep of a message; raises ProxyRefusal for an illegal one."""
    system = message.system_properties
    user = dict(message.user_properties)
    validation.check_properties(user, system.tag, system.keys)
    properties = {**user, names.UNIQUE_KEY: validation.check_message_id(system.message_id)}
    if system.tag:
        properties[names.TAGS] = system.tag
    if system.keys:
        properties[names.KEYS] = names.KEYS_SEPARATOR.join(system.keys)
    properties |= _transaction(system)
    if system.HasField("delivery_timestamp"):
        deliver_ms = max(millis(system.delivery_timestamp, StatusCode.ILLEGAL_DELIVERY_TIME), 0)
        validation.check_delivery_ms(deliver_ms, now_ms)
        properties[names.TIMER_DELIVER_MS] = str(deliver_ms)
    if system.HasField("message_group"):
        group = validation.check_message_group(system.message_group)
        properties[names.SHARDING_KEY] = group
    if system.HasField("priority"):
        properties[names.PRIORITY] = str(validation.check_priority(system.priority))
    if system.trace_context:
        properties[names.TRACE_CONTEXT] = system.trace_context
    return {
        **properties,
        names.BORN_HOST: system.born_host or caller.address.rpartition(":")[0],
        names.BORN_TIMESTAMP: str(_born_ms(system, now_ms)),
        names.PRODUCER_GROUP: topic,
    }


def _transaction(system: pb.SystemProperties) -> Mapping[str, str]:
    """Properties of a half message; none of another one."""
    if system.message_type != pb.TRANSACTION:
        return {}
    properties = {names.TRANSACTION_PREPARED: "true"}
    if system.HasField("orphaned_transaction_recovery_duration"):
        seconds = system.orphaned_transaction_recovery_duration.ToSeconds()
        properties[names.CHECK_IMMUNITY_TIME] = str(validation.check_recovery_s(seconds))
    return properties


def prepare(
    message: pb.Message, topic: str, properties: Mapping[str, str], now_ms: int
) -> PreparedMessage:
    """A message as the client's delivery sends it."""
    text = encode_properties({name: value for name, value in properties.items() if value})
    return PreparedMessage(
        topic,
        message.body,
        text.decode("utf-8", "surrogatepass"),
        properties[names.UNIQUE_KEY],
        None,
        0,
        _born_ms(message.system_properties, now_ms),
        BATCH_ITEM_SIZE_MIN + len(message.body) + len(text),
        is_unbatchable=message_type(properties) not in (MessageType.NORMAL, MessageType.FIFO),
        selection=_selection(topic, properties.get(names.SHARDING_KEY)),
        sys_flag=SysFlag.COMPRESSED if message.system_properties.body_encoding == pb.GZIP else 0,
    )


def _selection(topic: str, message_group: str | None) -> QueueSelection | None:
    """Selection of a message group's queue; None leaves it to the turn of the queues."""
    if message_group is None:
        return None
    hashed = hash_code(message_group)

    def choose(queues: Sequence[MessageQueue], _message: Message) -> MessageQueue:
        return queues[queue_index(hashed, len(queues))]

    return QueueSelection(choose, Message(topic, b""))


def _born_ms(system: pb.SystemProperties, now_ms: int) -> int:
    return millis(system.born_timestamp) if system.HasField("born_timestamp") else now_ms


def millis(time: Timestamp, code: StatusCode = StatusCode.BAD_REQUEST) -> int:
    """A time in ms since the epoch; raises ProxyRefusal for one outside of the years 1 to 9999."""
    try:
        return int(time.ToMilliseconds())
    except ValueError as error:
        raise ProxyRefusal(code, str(error)) from None


def to_protobuf(message: ReadableMessage, body: bytes, sys_flag: int, topic: str) -> pb.Message:
    """A message as clients get it; `body` is the one that is stored, perhaps compressed.

    Never fails, whatever other producers have written: a message that could not be delivered
    would take those that are popped with it to the dead letters.
    """
    properties = {
        _replace_surrogates(name): _replace_surrogates(value)
        for name, value in message.properties.items()
    }
    system = pb.SystemProperties(
        keys=map(_replace_surrogates, message.keys),
        message_id=_replace_surrogates(message.message_id),
        body_digest=pb.Digest(
            type=pb.MD5, checksum=md5(body, usedforsecurity=False).hexdigest().upper()
        ),
        body_encoding=pb.GZIP if sys_flag & SysFlag.COMPRESSED else pb.IDENTITY,
        message_type=message_type(properties).name,
        born_host=properties.get(names.BORN_HOST) or message.born_host,
        store_host=message.store_host,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        delivery_attempt=min(message.reconsume_times + 1, INT_MAX),
    )
    system.born_timestamp.FromMilliseconds(min(max(message.born_ms, 0), TIME_MAX_MS))
    system.store_timestamp.FromMilliseconds(min(max(message.stored_ms, 0), TIME_MAX_MS))
    _add_optional(system, properties)
    user = {name: value for name, value in properties.items() if name not in names.RESERVED}
    return pb.Message(
        topic=pb.Resource(name=topic), body=body, user_properties=user, system_properties=system
    )


def to_queue(queue: MessageQueue) -> pb.MessageQueue:
    """A queue as clients name it."""
    topic, broker = pb.Resource(name=queue.topic), pb.Broker(name=queue.broker_name)
    return pb.MessageQueue(topic=topic, id=queue.queue_id, broker=broker)


def _add_optional(system: pb.SystemProperties, properties: Mapping[str, str]) -> None:
    if (tag := properties.get(names.TAGS)) is not None:
        system.tag = tag
    if (group := properties.get(names.SHARDING_KEY)) is not None:
        system.message_group = group
    if (context := properties.get(names.TRACE_CONTEXT)) is not None:
        system.trace_context = context
    if (deliver_ms := _number(properties.get(names.TIMER_DELIVER_MS), TIME_MAX_MS)) is not None:
        system.delivery_timestamp.FromMilliseconds(deliver_ms)
    if (priority := _number(properties.get(names.PRIORITY), INT_MAX)) is not None:
        system.priority = priority
    origin = properties.get(names.DLQ_ORIGIN_TOPIC)
    origin_id = properties.get(names.DLQ_ORIGIN_MESSAGE_ID)
    if origin and origin_id:
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = origin_id


def filter_of(expression: pb.FilterExpression) -> tuple[str, str]:
    """Kind and text of a filter, as brokers have them; no text means all messages."""
    kind = SQL92 if expression.type == pb.SQL else TAG
    return kind, expression.expression or "*"


def _replace_surrogates(text: str) -> str:
    """A text with `?` for lone surrogates, which protobuf cannot hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _number(text: str | None, most: int) -> int | None:
    """A number of a property, which senders may have written wrong or too large: None then."""
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > len(str(most)):
        return None
    number = int(text)
    return number if number <= most else None
