"""Publisher of FastStream: publishes to one topic, with headers and fields of its own."""

from collections.abc import Iterable, Sequence
from typing import Any, Unpack

from faststream._internal.configs import PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.types import PublisherMiddleware
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand
from faststream.specification import schema
from faststream.specification.asyncapi.utils import resolve_payloads

from roquet.client import MessageFields, SendReceipt
from roquet.integrations.faststream.messages import (
    PublishOptions,
    RocketMessage,
    RocketPublishCommand,
)


class RocketPublisherSpecification(PublisherSpecification[Any, Any]):
    """A publisher's part of the AsyncAPI page: one channel."""

    topic = ""
    """The topic without the prefixes of routers."""

    @property
    def full_topic(self) -> str:
        """The topic with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self.topic}"

    @property
    def name(self) -> str:
        """The title, else the topic."""
        return self.config.title_ or f"{self.full_topic}:Publisher"

    def get_schema(self) -> dict[str, schema.PublisherSpec]:
        """The channel; FastStream knows bindings of its own brokers alone."""
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        operation = schema.Operation(schema.Message(payload, f"{self.name}:Message"), None)
        about = self.config.description_
        return {self.name: schema.PublisherSpec(about, operation, None, self.full_topic)}


class RocketPublisher(PublisherUsecase):
    """Publishes to one topic; options of its own are those of each of its messages."""

    def __init__(
        self,
        config: PublisherUsecaseConfig,
        specification: RocketPublisherSpecification,
        options: PublishOptions,
        *,
        is_batch: bool,
    ) -> None:
        super().__init__(config, specification)
        self._specification = specification
        self._options = options
        self._is_batch = is_batch

    @property
    def topic(self) -> str:
        """The topic with the prefixes of routers."""
        return self._specification.full_topic

    async def publish(  # type: ignore[override]
        self, *messages: Any, **options: Unpack[PublishOptions]
    ) -> SendReceipt | Sequence[SendReceipt]:
        """Publish one message, or several where the publisher was made with `batch=True`."""
        command = self._command(messages, options, PublishType.PUBLISH)
        receipts: SendReceipt | Sequence[SendReceipt] = await self._send(command, ())
        return receipts

    async def request(  # type: ignore[override]
        self, message: Any, **options: Unpack[PublishOptions]
    ) -> RocketMessage:
        """Publish a message and return the reply of its handler. Raises TimeoutError."""
        command = self._command([message], options, PublishType.REQUEST)
        reply: RocketMessage = await self._basic_request(
            command, producer=self._outer_config.producer
        )
        return reply

    def _command(
        self, bodies: Sequence[Any], options: PublishOptions, kind: PublishType
    ) -> RocketPublishCommand:
        headers = {**self._options.get("headers", {}), **options.get("headers", {})}
        options = {"correlation_id": self._outer_config.id_generator(), **self._options, **options}
        options["headers"] = headers
        return RocketPublishCommand.of(bodies, self.topic, options, kind)

    async def _publish(
        self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]
    ) -> None:
        """Publish the result of a handler."""
        command = RocketPublishCommand.from_cmd(cmd, batch=self._is_batch)
        own = RocketPublishCommand.of([], self.topic, self._options, cmd.publish_type)
        command.destination = command.destination or self.topic
        command.add_headers(own.headers, override=False)
        command.reply_to = command.reply_to or own.reply_to
        command.fields = MessageFields(**{**own.fields, **command.fields})
        await self._send(command, _extra_middlewares)

    async def _send(
        self, command: RocketPublishCommand, extra: Iterable[PublisherMiddleware]
    ) -> Any:
        send = self._basic_publish_batch if self._is_batch else self._basic_publish
        producer = self._outer_config.producer
        return await send(command, producer=producer, _extra_middlewares=extra)
