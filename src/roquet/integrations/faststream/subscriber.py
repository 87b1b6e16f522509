"""Subscriber of FastStream: a consumer, and workers that hand its messages to FastStream."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast

import msgspec
from faststream import AckPolicy
from faststream._internal import configs
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.publisher.proto import PublisherProto
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream._internal.endpoint.subscriber.mixins import TasksMixin
from faststream._internal.endpoint.utils import process_msg
from faststream._internal.parser import DefaultCodec
from faststream.exceptions import SetupError
from faststream.message import StreamMessage
from faststream.security import BaseSecurity, SASLPlaintext
from faststream.specification import schema
from faststream.specification.asyncapi.utils import resolve_payloads

from roquet.client import ClientConfig, ConsumerConfig, PopConsumer, PushConsumer, ReceivedMessage
from roquet.integrations.faststream.messages import (
    NATIVE_REPLY,
    RocketMessage,
    decode_batch,
    parse_batch,
    parse_message,
)
from roquet.integrations.faststream.publisher import ReplyPublisher, RocketProducer
from roquet.integrations.unreadable import readable_body
from roquet.model.printable_text import printable

AnyConsumer: TypeAlias = PushConsumer | PopConsumer
C = TypeVar("C", bound=ClientConfig)


def secured(config: C, security: BaseSecurity | None) -> C:
    """The settings with FastStream's security; SetupError for a kind that RocketMQ has not."""
    if security is None:
        return config
    if security.ssl_context is not None or type(security) not in (BaseSecurity, SASLPlaintext):
        raise SetupError(
            "security is SASLPlaintext(access key, secret key) or BaseSecurity(use_ssl=True);"
            " files of certificates go into ProducerConfig(tls=…) and ConsumerConfig(tls=…)"
        )
    fields: dict[str, Any] = {"tls": config.tls or security.use_ssl or None}
    if isinstance(security, SASLPlaintext):
        fields |= {"access_key": security.username, "secret_key": security.password}
    return msgspec.structs.replace(config, **fields)


@dataclass(kw_only=True)
class RocketBrokerConfig(configs.BrokerConfig):
    """Settings of a broker that its subscribers use."""

    namesrv: str | Sequence[str] | None = None
    consumer: ConsumerConfig = field(default_factory=ConsumerConfig)
    security: BaseSecurity | None = None
    producer: RocketProducer = field(default_factory=RocketProducer)
    is_in_memory: bool = False
    """Whether a test broker delivers messages, so that subscribers open no consumer."""


@dataclass(kw_only=True)
class RocketSubscriberConfig(
    configs.SubscriberUsecaseConfig, configs.SubscriberSpecificationConfig
):
    """Messages that a subscriber takes, and how."""

    topics: Sequence[str]
    group: str | None
    tags: str
    sql: str | None
    is_pop: bool
    batch_size: int | None
    """None for one message at a time."""
    batch_wait_ms: int
    workers: int
    consumer: ConsumerConfig | None
    """None takes the broker's."""

    def __post_init__(self) -> None:
        self.parser = parse_batch if self.is_batch else parse_message
        self.decoder = decode_batch if self.is_batch else DefaultCodec().decode

    @property
    def is_batch(self) -> bool:
        """Whether the handlers get lists."""
        return self.batch_size is not None

    @property
    def ack_policy(self) -> AckPolicy:
        """The subscriber's policy, else the broker's, else to retry failed messages."""
        chosen = (each for each in (self._ack_policy, self._outer_config.ack_policy))
        return next((each for each in chosen if each is not EMPTY), AckPolicy.NACK_ON_ERROR)

    @property
    def full_topics(self) -> list[str]:
        """The topics with the prefixes of routers."""
        return [f"{self._outer_config.prefix}{topic}" for topic in self.topics]

    @property
    def summary(self) -> str:
        """The group and the filter, for people."""
        chosen = f"tags {self.tags}" if self.sql is None else f"sql {self.sql}"
        return f"RocketMQ group {self.group}, {chosen}"


class RocketSubscriberSpecification(SubscriberSpecification[Any, Any]):
    """A subscriber's part of the AsyncAPI page: a channel for each topic."""

    config: RocketSubscriberConfig

    @property
    def channel_labels(self) -> list[str]:
        """The topics."""
        return self.config.full_topics

    def get_schema(self) -> dict[str, schema.SubscriberSpec]:
        """The channels; FastStream knows bindings of its own brokers alone."""
        payload = resolve_payloads(self.get_payloads())
        summary = self.config.summary if self.config.group else None
        about = "\n\n".join(filter(None, [self.description, summary])) or None
        channels = {}
        for topic in self.channel_labels:
            key = self._channel_key(topic, split=len(self.channel_labels) > 1)
            operation = schema.Operation(schema.Message(payload, f"{key}:Message"), None)
            channels[key] = schema.SubscriberSpec(about, operation, None, topic)
        return channels


class RocketSubscriber(TasksMixin):
    """Handles the messages of a group, each acknowledged when its handler has ended."""

    _outer_config: RocketBrokerConfig
    specification: RocketSubscriberSpecification
    consumer: AnyConsumer | None = None
    """Open from the start to the stop."""

    @property
    def settings(self) -> RocketSubscriberConfig:
        """The messages that the subscriber takes, and how."""
        return self.specification.config

    def _create_consumer(self) -> AnyConsumer:
        settings, outer = self.settings, self._outer_config
        topics = settings.full_topics
        if settings.group is None:
            raise SetupError(
                f"the subscriber of {', '.join(topics)} needs a group, whose members share the"
                " messages: subscriber(…, group='billing')"
            )
        kind = PopConsumer if settings.is_pop else PushConsumer
        return kind(
            outer.namesrv, group=settings.group, topic=topics, tags=settings.tags,
            sql=settings.sql, config=secured(settings.consumer or outer.consumer, outer.security),
        )  # fmt: skip

    async def start(self) -> None:
        """Join the group and begin to handle messages."""
        if self.consumer is not None:
            return
        await super().start()
        if not self._outer_config.is_in_memory:
            consumer = self._create_consumer()
            await consumer.start()
            self.consumer = consumer
            for _ in range(self.settings.workers if self.calls else 0):
                self.add_task(self._work, (consumer,), restart_on_failure=False)
        self._post_start()

    async def stop(self) -> None:
        """Let handlers end within the graceful timeout, and leave the group.

        Messages whose handlers have not ended come again, here or to another member.
        """
        consumer, self.consumer = self.consumer, None
        # A handler may stop its own subscriber: its worker ends by itself.
        workers = [each for each in self.tasks if each is not asyncio.current_task()]
        self.tasks = [*workers]
        if consumer is not None:
            consumer.stop()
        await super().stop()
        if workers:
            await asyncio.wait(workers, timeout=self._outer_config.graceful_timeout or 0)
        if consumer is not None:
            await consumer.close()

    async def _work(self, consumer: AnyConsumer) -> None:
        try:
            async for raw in self._raw_messages(consumer):
                await self.consume(raw)
                if self.running and self.ack_policy is not AckPolicy.MANUAL:
                    # Settled already, unless that failed: it would hold back its queue.
                    for message in raw if self.settings.is_batch else [raw]:
                        await message.nack()
                await asyncio.sleep(0)  # handlers that never wait leave turns to others
        except Exception as error:
            self._log(logging.CRITICAL, f"the subscriber has ended: {error}", exc_info=error)

    async def _raw_messages(self, consumer: AnyConsumer) -> AsyncIterator[Any]:
        """Messages that can be read, or batches of them, until the consumer stops.

        One that has failed comes alone: a bad one is to take no other to the dead letters.
        """
        size, wait_ms = self.settings.batch_size, self.settings.batch_wait_ms
        async for message in consumer:
            more = [] if size is None else await consumer.fetch(size - 1, wait_ms)
            batch = [each for each in (message, *more) if await readable_body(each) is not None]
            alone = [each for each in batch if size is None or each.tries]
            for each in alone:
                yield each if size is None else [each]
            if together := [each for each in batch if each not in alone]:
                yield together

    async def get_one(self, *, timeout: float = 5.0) -> RocketMessage | None:  # noqa: ASYNC109
        """Wait for one message, which the caller settles."""
        raw = await self._opened().next(int(timeout * 1000))
        return None if raw is None else await self._process(raw)

    async def __aiter__(self) -> AsyncIterator[RocketMessage]:
        """Iterate over messages, which the caller settles."""
        async for raw in self._opened():
            yield await self._process(raw)

    def _opened(self) -> AnyConsumer:
        assert not self.calls, "a subscriber with handlers hands messages to them alone"
        if self.consumer is None:
            raise SetupError("the subscriber is not started: start it, or its broker")
        return self.consumer

    async def _process(self, raw: ReceivedMessage) -> RocketMessage:
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        middlewares = (each(raw, context=context) for each in self._broker_middlewares)
        message = await process_msg(raw, middlewares=middlewares, parser=parser, decoder=decoder)
        return cast("RocketMessage", message)

    def get_log_context(self, message: StreamMessage[Any] | None) -> dict[str, str]:
        """The topics, and the message's id, which its sender has chosen."""
        message_id = super().get_log_context(message)["message_id"]
        topics = ",".join(self.settings.full_topics)
        return {"topic": topics, "message_id": printable(message_id)}

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Sequence[PublisherProto]:
        raw = message.raw_message
        request = raw if message.reply_to == NATIVE_REPLY and raw.wants_reply else None
        return [ReplyPublisher(self._outer_config.producer, message.reply_to, request)]
