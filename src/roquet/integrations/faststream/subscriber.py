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
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import process_msg
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
    decode_single,
    parse_batch,
    parse_message,
)
from roquet.integrations.faststream.producer import ReplyPublisher, RocketProducer
from roquet.rules import sql92
from roquet.rules.tag_filter import parse_tags

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
    tls = config.tls or security.use_ssl or None
    if not isinstance(security, SASLPlaintext):
        return msgspec.structs.replace(config, tls=tls)
    keys = {"access_key": security.username, "secret_key": security.password}
    return msgspec.structs.replace(config, tls=tls, **keys)


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
class RocketSubscriberConfig(configs.SubscriberUsecaseConfig):
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

    @property
    def ack_policy(self) -> AckPolicy:
        """The subscriber's policy, else the broker's, else to retry failed messages."""
        chosen = (each for each in (self._ack_policy, self._outer_config.ack_policy))
        return next((each for each in chosen if each is not EMPTY), AckPolicy.NACK_ON_ERROR)

    @property
    def full_topics(self) -> list[str]:
        """The topics with the prefixes of routers."""
        return [f"{self._outer_config.prefix}{topic}" for topic in self.topics]

    def takes(self, message: ReceivedMessage) -> bool:
        """Whether the filter takes a message of one of the topics."""
        if self.sql is None:
            return (tags := parse_tags(self.tags)) is None or message.tag in tags
        return sql92.matcher(sql92.parse(self.sql), sql92.of_mapping)(message.properties)

    @property
    def summary(self) -> str:
        """The group and the filter, for people."""
        chosen = f"tags {self.tags}" if self.sql is None else f"sql {self.sql}"
        return f"RocketMQ group {self.group}, {chosen}"


class RocketSubscriberSpecification(SubscriberSpecification[Any, Any]):
    """A subscriber's part of the AsyncAPI page: a channel for each topic."""

    subscriber: RocketSubscriberConfig

    @property
    def channel_labels(self) -> list[str]:
        """The topics."""
        return self.subscriber.full_topics

    def get_schema(self) -> dict[str, schema.SubscriberSpec]:
        """The channels; FastStream knows bindings of its own brokers alone."""
        topics, payload = self.channel_labels, resolve_payloads(self.get_payloads())
        keys = [self._channel_key(topic, split=len(topics) > 1) for topic in topics]
        summary = self.subscriber.summary if self.subscriber.group else None
        about = "\n\n".join(filter(None, [self.description, summary])) or None
        messages = [schema.Message(payload, f"{key}:Message") for key in keys]
        operations = [schema.Operation(message, None) for message in messages]
        return {
            key: schema.SubscriberSpec(about, operation, None, topic)
            for key, operation, topic in zip(keys, operations, topics, strict=True)
        }


class RocketSubscriber(SubscriberUsecase[Any]):
    """Handles the messages of a group, each acknowledged when its handler has ended."""

    _outer_config: RocketBrokerConfig
    consumer: AnyConsumer | None = None
    """Open from the start to the stop."""

    def __init__(
        self,
        config: RocketSubscriberConfig,
        specification: RocketSubscriberSpecification,
        calls: CallsCollection[Any],
    ) -> None:
        self.settings = specification.subscriber = config
        self.is_batch = config.batch_size is not None
        config.parser = parse_batch if self.is_batch else parse_message
        config.decoder = decode_batch if self.is_batch else decode_single
        super().__init__(config, specification, calls)
        self._workers: set[asyncio.Task[None]] = set()

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
            for number in range(self.settings.workers if self.calls else 0):
                name = f"handler {number} of {self.settings.group}"
                self._workers.add(asyncio.create_task(self._work(consumer), name=name))
        self._post_start()

    async def stop(self) -> None:
        """Let handlers end within the graceful timeout, and leave the group.

        Messages whose handlers have not ended come again, here or to another member.
        """
        consumer, self.consumer = self.consumer, None
        await super().stop()
        workers = self._workers - {asyncio.current_task()}  # a handler may stop its subscriber
        self._workers.clear()
        for worker in workers:
            worker.cancel()
        if workers:
            await asyncio.wait(workers, timeout=self._outer_config.graceful_timeout)
        if consumer is not None:
            await consumer.close()

    async def _work(self, consumer: AnyConsumer) -> None:
        try:
            async for raw in self._raw_messages(consumer):
                await self.consume(raw)
                if self.running and self.ack_policy is not AckPolicy.MANUAL:
                    # Settled already, unless it could not be parsed: it would hold back its queue.
                    for message in raw if self.is_batch else [raw]:
                        await message.nack()
                await asyncio.sleep(0)  # handlers that never wait leave turns to others
        except Exception as error:
            self._log(logging.CRITICAL, f"the subscriber has ended: {error}", exc_info=error)

    async def _raw_messages(self, consumer: AnyConsumer) -> AsyncIterator[Any]:
        if self.settings.batch_size is None:
            async for message in consumer:
                yield message
            return
        while self.running:
            batch = await consumer.fetch(self.settings.batch_size, self.settings.batch_wait_ms)
            if batch:
                yield batch

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
        """The topics, and the message's id."""
        topics = {"topic": ",".join(self.settings.full_topics)}
        return topics | super().get_log_context(message)

    def _make_response_publisher(self, message: StreamMessage[Any]) -> Sequence[PublisherProto]:
        is_native = message.reply_to == NATIVE_REPLY
        request = message.raw_message if is_native else None
        return [ReplyPublisher(self._outer_config.producer, message.reply_to, request)]
