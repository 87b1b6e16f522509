"""Publishers of FastStream: what encodes and sends messages, and one topic's publisher."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from fast_depends.library.serializer import SerializerProto
from faststream._internal import configs
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import BatchCodecProto, CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream._internal.types import CustomCallable, PublisherMiddleware
from faststream.exceptions import IncorrectState
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand
from faststream.specification import schema
from faststream.specification.asyncapi.utils import resolve_payloads

from roquet.client import (
    CallTimeout,
    Message,
    MessageFields,
    Producer,
    ReceivedMessage,
    ReplyMessage,
    SendReceipt,
)
from roquet.integrations.faststream.messages import (
    PublishOptions,
    RocketMessage,
    RocketPublishCommand,
    parse_message,
)


class RocketProducer(ProducerProto[RocketPublishCommand]):
    """Encodes messages, and sends them while the broker is connected."""

    client: Producer | None = None
    serializer: SerializerProto | None = None

    def __init__(
        self,
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
    ) -> None:
        self._parser = ParserComposition(parser, parse_message)
        self._decoder = ParserComposition(decoder, DefaultCodec().decode)
        self.codec = codec or DefaultCodec()

    @property
    def _connected(self) -> Producer:
        if self.client is None:
            raise IncorrectState("the broker is not connected: start it, or await broker.connect()")
        return self.client

    async def _encode(self, command: RocketPublishCommand) -> Message:
        return command.message(*await self.codec.encode(command.body, self.serializer))

    async def publish(self, cmd: RocketPublishCommand) -> SendReceipt | bool:
        """Send a message, or reply to a request: False if nobody waits for the reply any more."""
        message = await self._encode(cmd)
        if cmd.request is not None:
            return await cmd.request.reply(message.body, properties=message.properties)
        return await self._connected.send(message)

    async def request(self, cmd: RocketPublishCommand) -> ReplyMessage:
        """Send a message and return its reply. Raises TimeoutError when none comes in time."""
        message, timeout_ms = await self._encode(cmd), max(int(cmd.timeout * 1000), 1)
        try:
            return await self._connected.request(message, timeout_ms=timeout_ms)
        except CallTimeout as error:
            raise TimeoutError(str(error)) from error

    async def publish_batch(self, cmd: RocketPublishCommand) -> Sequence[SendReceipt]:
        """Send messages in batches that form on the way; return their receipts."""
        bodies = cmd.batch_bodies
        if isinstance(self.codec, BatchCodecProto):
            encoded = await self.codec.encode_batch(bodies, self.serializer)
        else:
            encoded = [await self.codec.encode(body, self.serializer) for body in bodies]
        return await self._connected.send_many([cmd.message(*each) for each in encoded])


class ReplyPublisher(FakePublisher):
    """Publishes a handler's result as a reply: to the producer that waits, or to a topic."""

    def __init__(
        self, producer: RocketProducer, topic: str, request: ReceivedMessage | None
    ) -> None:
        super().__init__(producer=producer)
        self._topic = topic
        self._request = request

    def patch_command(self, cmd: PublishCommand) -> RocketPublishCommand:
        """Make the command of the reply."""
        command = RocketPublishCommand.from_cmd(super().patch_command(cmd))
        command.destination, command.request = self._topic, self._request
        return command


@dataclass(kw_only=True)
class RocketPublisherConfig(configs.PublisherUsecaseConfig, configs.PublisherSpecificationConfig):
    """A publisher's topic, and the options of each of its messages."""

    topic: str
    """Without the prefixes of routers."""
    options: PublishOptions
    is_batch: bool


class RocketPublisherSpecification(PublisherSpecification[Any, Any]):
    """A publisher's part of the AsyncAPI page: one channel."""

    config: RocketPublisherConfig

    @property
    def topic(self) -> str:
        """The topic with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        """The title, else the topic."""
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, schema.PublisherSpec]:
        """The channel; FastStream knows bindings of its own brokers alone."""
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        operation = schema.Operation(schema.Message(payload, f"{self.name}:Message"), None)
        about = self.config.description_
        return {self.name: schema.PublisherSpec(about, operation, None, self.topic)}


class RocketPublisher(PublisherUsecase):
    """Publishes to one topic; options of its own are those of each of its messages."""

    specification: RocketPublisherSpecification

    async def publish(  # type: ignore[override]
        self, *messages: Any, **options: Unpack[PublishOptions]
    ) -> SendReceipt | Sequence[SendReceipt]:
        """Publish one message, or several where the publisher was made with `batch=True`."""
        command = self._command(PublishType.PUBLISH, messages, options)
        receipts: SendReceipt | Sequence[SendReceipt] = await self._send(command, ())
        return receipts

    async def request(  # type: ignore[override]
        self, message: Any, **options: Unpack[PublishOptions]
    ) -> RocketMessage:
        """Publish a message and return the reply of its handler. Raises TimeoutError."""
        command = self._command(PublishType.REQUEST, [message], options)
        producer = self._outer_config.producer
        reply: RocketMessage = await self._basic_request(command, producer=producer)
        return reply

    def _command(
        self, kind: PublishType, bodies: Sequence[Any], options: PublishOptions
    ) -> RocketPublishCommand:
        own = self.specification.config.options
        options["headers"] = {**own.get("headers", {}), **options.get("headers", {})}
        options = {"correlation_id": self._outer_config.id_generator(), **own, **options}
        return RocketPublishCommand(
            *bodies, destination=self.specification.topic, _publish_type=kind, **options
        )

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> None:
        """Publish the result of a handler."""
        command = RocketPublishCommand.from_cmd(cmd, batch=self.specification.config.is_batch)
        own = self._command(cmd.publish_type, [], {})
        command.destination = command.destination or own.destination
        command.add_headers(own.headers, override=False)
        command.reply_to = command.reply_to or own.reply_to
        command.fields = MessageFields(**{**own.fields, **command.fields})
        await self._send(command, _extra_middlewares)

    async def _send(
        self, command: RocketPublishCommand, extra: Iterable[PublisherMiddleware]
    ) -> Any:
        is_batch, producer = self.specification.config.is_batch, self._outer_config.producer
        send = self._basic_publish_batch if is_batch else self._basic_publish
        return await send(command, producer=producer, _extra_middlewares=extra)
