"""Messages in FastStream's terms: those that handlers get, and commands to publish some.

Headers are properties of the message, as texts. Brokers take no empty body: one is sent as a byte
and marked by a property.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Unpack

from faststream.message import StreamMessage, decode_message
from faststream.response.publish_type import PublishType
from faststream.response.response import BatchPublishCommand, PublishCommand

from roquet.client import Message, MessageFields, ReceivedMessage, ReplyMessage
from roquet.client.sending.prepare import build_message
from roquet.model.properties import RESERVED

EMPTY_BODY: Final = "empty_body"
"""Property of a message whose body was empty."""

NATIVE_REPLY: Final = "the producer that waits"
"""`reply_to` of a request whose reply goes to its producer, and to no topic."""


class RocketMessage(StreamMessage[Any]):
    """A message, or a batch of them, that a handler gets; `raw_message` is the client's own."""

    @property
    def received(self) -> Sequence[ReceivedMessage]:
        """The client's messages, which are settled together."""
        return self.raw_message if isinstance(self.raw_message, Sequence) else [self.raw_message]

    async def ack(self) -> None:
        """Acknowledge: none of the messages comes again."""
        for message in self.received:
            await message.ack()
        await super().ack()

    async def nack(self, delay_ms: int | None = None) -> None:
        """Let the messages come again after a pause, which by default grows with each retry."""
        for message in self.received:
            await message.nack(delay_ms)
        await super().nack()

    async def reject(self) -> None:
        """Move the messages to the group's dead letters."""
        for message in self.received:
            await message.dead_letter()
        await super().reject()


async def parse_message(raw: ReceivedMessage | ReplyMessage) -> RocketMessage:
    """Parse a received message, or the reply to a request."""
    properties = raw.properties
    is_request = isinstance(raw, ReceivedMessage) and raw.wants_reply
    return RocketMessage(
        raw,
        b"" if EMPTY_BODY in properties else raw.body,
        headers={k: v for k, v in properties.items() if k not in RESERVED and k != EMPTY_BODY},
        reply_to=NATIVE_REPLY if is_request else properties.get("reply_to", ""),
        content_type=properties.get("content-type"),
        correlation_id=properties.get("correlation_id"),
        message_id=raw.message_id,
    )


async def parse_batch(batch: Sequence[ReceivedMessage]) -> RocketMessage:
    """Parse messages that are handled together; headers and ids are those of the first one."""
    parsed = [await parse_message(raw) for raw in batch]
    return RocketMessage(
        batch,
        [each.body for each in parsed],
        headers=parsed[0].headers,
        batch_headers=[each.headers for each in parsed],
        correlation_id=parsed[0].correlation_id,
        message_id=parsed[0].message_id,
    )


async def decode_batch(message: StreamMessage[Any]) -> list[Any]:
    """Decode each body of a batch by its own content type. FastStream knows this one by name."""
    return [decode_message(await parse_message(raw)) for raw in message.raw_message]


class PublishOptions(MessageFields, total=False):
    """Keywords of the methods that publish: a message's fields, and FastStream's part of it."""

    headers: Mapping[str, Any]
    """Properties of the message; values become texts."""
    correlation_id: str
    reply_to: str
    """Topic for the results of handlers."""
    timeout: float
    """Seconds that a request waits for its reply."""


class RocketPublishCommand(BatchPublishCommand):
    """One message or several to publish to a topic, with the fields that they share."""

    request: ReceivedMessage | None = None
    """The request that this replies to, instead of going to a topic."""

    def __init__(
        self,
        *bodies: Any,
        _publish_type: PublishType,
        destination: str = "",
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        timeout: float = 30.0,
        **fields: Unpack[MessageFields],
    ) -> None:
        super().__init__(
            *(bodies or [None]),  # no body at all is an empty batch
            destination=destination,
            headers={**(headers or {})},
            correlation_id=correlation_id,
            reply_to=reply_to,
            _publish_type=_publish_type,
        )
        self.fields = fields
        self.timeout = timeout

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> "RocketPublishCommand":
        """Make a command of a handler's result, which is a sequence of bodies for a batch."""
        body, bodies = cls._parse_bodies(cmd.body, batch=batch)
        return RocketPublishCommand(
            body, *bodies,
            destination=cmd.destination, headers=cmd.headers, correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to, _publish_type=cmd.publish_type, **getattr(cmd, "fields", {}),
        )  # fmt: skip

    def message(self, body: bytes, content_type: str | None) -> Message:
        """Make one of the messages from its encoded body."""
        own = {
            "content-type": content_type,
            "correlation_id": self.correlation_id,
            "reply_to": self.reply_to,
            EMPTY_BODY: "" if body else "true",
        }
        headers = {**self.fields.get("properties", {}), **self.headers}
        properties = {name: str(value) for name, value in headers.items()}
        properties |= {name: value for name, value in own.items() if value}
        fields = MessageFields(**{**self.fields, "properties": properties})
        return build_message(self.destination, body or b"\0", fields)


class RocketResponse(RocketPublishCommand):
    """A handler's result with headers and fields of the message: tag, keys, order_key, delay."""

    def __init__(self, body: Any, **options: Unpack[PublishOptions]) -> None:
        super().__init__(body, _publish_type=PublishType.PUBLISH, **options)

    def as_publish_command(self) -> RocketPublishCommand:
        """Make a command that publishes this result; each publisher gets one of its own."""
        return self.from_cmd(self)
