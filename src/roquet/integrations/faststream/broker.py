"""RocketBroker and RocketRouter: where applications declare subscribers and publishers."""

import logging
import os
from collections.abc import Iterable, Sequence
from typing import Any, Unpack, cast

from fast_depends import Provider, dependency_provider
from fast_depends.dependencies import Dependant
from fast_depends.library.serializer import SerializerProto
from faststream import AckPolicy, ContextRepo
from faststream._internal.basic_types import LoggerProto
from faststream._internal.broker import BrokerRouter, BrokerUsecase
from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import SubscriberRoute
from faststream._internal.constants import EMPTY
from faststream._internal.di import FastDependsConfig
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream._internal.parser import CodecProto
from faststream._internal.types import BrokerMiddleware, CustomCallable, IdGenerator
from faststream.exceptions import SetupError
from faststream.message import gen_cor_id
from faststream.response.publish_type import PublishType
from faststream.security import BaseSecurity
from faststream.specification.schema import BrokerSpec, Tag, TagDict

from roquet.client import ConsumerConfig, Producer, ProducerConfig, SendReceipt
from roquet.client.arguments import check_number
from roquet.client.config import NAMESRV_VARIABLE, resolve_name_servers
from roquet.integrations.faststream.messages import (
    PublishOptions,
    RocketMessage,
    RocketPublishCommand,
)
from roquet.integrations.faststream.publisher import (
    RocketProducer,
    RocketPublisher,
    RocketPublisherConfig,
    RocketPublisherSpecification,
)
from roquet.integrations.faststream.subscriber import (
    RocketBrokerConfig,
    RocketSubscriber,
    RocketSubscriberConfig,
    RocketSubscriberSpecification,
    secured,
)
from roquet.log_records import escape_record
from roquet.model.subscription import ALL


class RocketRegistrator(Registrator[Any, RocketBrokerConfig]):
    """Declares subscribers and publishers: the common part of brokers and routers."""

    def subscriber(  # type: ignore[override]  # noqa: PLR0913 - options of its own
        self,
        *topics: str,
        group: str | None = None,
        tags: str = ALL,
        sql: str | None = None,
        batch: bool = False,
        batch_size: int = 100,
        batch_wait_ms: int = 200,
        max_workers: int = 1,
        pop: bool = False,
        config: ConsumerConfig | None = None,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> RocketSubscriber:
        """Declare a subscriber, a member of `group`, whose members share the topics' messages.

        `pop` takes messages from any queue, those with a higher priority first. A batch is handled
        when it is full, or after `batch_wait_ms`. `config` replaces the broker's for consumers.
        """
        calls, outer = CallsCollection[Any](), cast("RocketBrokerConfig", self.config)
        settings = RocketSubscriberConfig(
            topics=topics, group=group, tags=tags, sql=sql, batch_wait_ms=batch_wait_ms,
            batch_size=check_number(batch_size, "batch_size", 1) if batch else None,
            workers=check_number(max_workers, "max_workers", 1), is_pop=pop,
            consumer=config, no_reply=no_reply, _ack_policy=ack_policy, _outer_config=outer,
            title_=title, description_=description, include_in_schema=include_in_schema,
        )  # fmt: skip
        specification = RocketSubscriberSpecification(outer, settings, calls)
        subscriber = RocketSubscriber(settings, specification, calls)
        super().subscriber(subscriber, persistent=persistent)
        return subscriber.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )

    def publisher(  # type: ignore[override]
        self,
        topic: str,
        *,
        batch: bool = False,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
        **options: Unpack[PublishOptions],
    ) -> RocketPublisher:
        """Declare a publisher of a topic; `options` are those of each of its messages."""
        outer = cast("RocketBrokerConfig", self.config)
        settings = RocketPublisherConfig(
            topic=topic, options=options, is_batch=batch, _outer_config=outer,
            title_=title, description_=description, include_in_schema=include_in_schema,
            schema_=schema,
        )  # fmt: skip
        publisher = RocketPublisher(settings, RocketPublisherSpecification(outer, settings))
        super().publisher(publisher, persistent=persistent)
        return publisher


class RocketRouter(RocketRegistrator, BrokerRouter[Any, RocketBrokerConfig]):
    """Subscribers and publishers that a broker or another router includes; a prefix of topics."""

    def __init__(  # noqa: PLR0913 - FastStream's options
        self,
        prefix: str = "",
        handlers: Iterable[SubscriberRoute] = (),
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[RocketRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        ack_policy: AckPolicy = EMPTY,
        include_in_schema: bool | None = None,
    ) -> None:
        config = RocketBrokerConfig(
            prefix=prefix,
            broker_dependencies=dependencies,
            broker_middlewares=middlewares,
            broker_parser=parser,
            broker_decoder=decoder,
            broker_codec=codec,
            ack_policy=ack_policy,
            include_in_schema=include_in_schema,
        )
        super().__init__(handlers=handlers, config=config, routers=routers)


class RocketBroker(RocketRegistrator, BrokerUsecase[Any, Producer, RocketBrokerConfig]):
    """Connects an application to RocketMQ, by the addresses of its name servers.

    `producer` and `consumer` are the settings of the clients; `security` is `SASLPlaintext` of an
    access key and its secret key, or `BaseSecurity(use_ssl=True)`. Without an acknowledgement
    policy failed messages are retried, and are dead letters after the group's last retry.
    """

    def __init__(  # noqa: PLR0913 - FastStream's options
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        producer: ProducerConfig | None = None,
        consumer: ConsumerConfig | None = None,
        security: BaseSecurity | None = None,
        graceful_timeout: float | None = 15.0,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[RocketRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
        ack_policy: AckPolicy = EMPTY,
        id_generator: IdGenerator = gen_cor_id,
        specification_url: str | None = None,
        protocol: str = "rocketmq",
        protocol_version: str | None = None,
        description: str | None = None,
        tags: Iterable[Tag | TagDict] = (),
        logger: LoggerProto | None = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: SerializerProto | None = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
    ) -> None:
        # Modules make brokers when they are imported: without an address the connection fails.
        is_known = namesrv is not None or os.environ.get(NAMESRV_VARIABLE)
        addresses = resolve_name_servers(namesrv, os.environ) if is_known else ("",)
        self._client_config = secured(producer or ProducerConfig(), security)
        config = RocketBrokerConfig(
            namesrv=namesrv,
            consumer=consumer or ConsumerConfig(),
            security=security,
            producer=RocketProducer(parser, decoder, codec),
            broker_middlewares=middlewares,
            broker_dependencies=dependencies,
            broker_parser=parser,
            broker_decoder=decoder,
            broker_codec=codec,
            logger=make_logger_state(logger, log_level, MessageLogger),
            fd_config=FastDependsConfig(
                use_fastdepends=apply_types,
                serializer=serializer,
                provider=provider or dependency_provider,
                context=context or ContextRepo(),
            ),
            graceful_timeout=graceful_timeout,
            ack_policy=ack_policy,
            id_generator=id_generator,
            extra_context={"broker": self},
        )
        urls = [f"rocketmq://{address}" for address in addresses]
        specification = BrokerSpec(
            [specification_url] if specification_url else urls,
            protocol,
            protocol_version,
            description,
            tags,
            security,
        )
        super().__init__(config=config, specification=specification, routers=routers)

    async def connect(self) -> Producer:
        """Open the producer, which sends what FastStream's methods cannot say."""
        self.config.broker_config.producer.serializer = self.config.fd_config._serializer
        return await super().connect()

    async def _connect(self) -> Producer:
        client = Producer(self.config.broker_config.namesrv, config=self._client_config)
        await client.start()
        self.config.broker_config.producer.client = client
        return client

    @property
    def rocket_subscribers(self) -> Sequence[RocketSubscriber]:
        """All subscribers, those of routers included."""
        return [each for each in self.subscribers if isinstance(each, RocketSubscriber)]

    async def start(self) -> None:
        """Connect, and start all subscribers; SetupError where a group has two subscriptions."""
        chosen: dict[str | None, str] = {}
        for each in (one for one in self.rocket_subscribers if one.settings.group is not None):
            wanted = f"{sorted(each.settings.full_topics)} {each.settings.summary}"
            if (other := chosen.setdefault(each.settings.group, wanted)) != wanted:
                raise SetupError(
                    f"members of one group have one subscription, not {other} and {wanted}:"
                    " give each its own group, or make it one subscriber of several topics"
                )
        await self.connect()
        await super().start()

    async def stop(self, *error: Any, **named: Any) -> None:
        """Let handlers end, leave the groups, and close the producer after its last send."""
        try:
            await super().stop(*error, **named)
        finally:
            if (client := self._connection) is not None:
                self._connection = self.config.broker_config.producer.client = None
                await client.close()

    async def ping(self, timeout: float | None = None) -> bool:  # noqa: ARG002, ASYNC109 - its own
        """Whether the broker is connected, and no subscriber has ended by an error."""
        consumers = [each.consumer for each in self.rocket_subscribers if each.consumer]
        return self._connection is not None and all(each.is_open for each in consumers)

    async def publish(
        self, message: Any = None, topic: str = "", **options: Unpack[PublishOptions]
    ) -> SendReceipt:
        """Publish a message and return when the broker has stored it."""
        command = self._command(PublishType.PUBLISH, [message], topic, options)
        receipt: SendReceipt = await self._basic_publish(command, producer=self._producer)
        return receipt

    async def publish_batch(  # type: ignore[override]
        self, *messages: Any, topic: str = "", **options: Unpack[PublishOptions]
    ) -> Sequence[SendReceipt]:
        """Publish messages in batches that form on the way."""
        command = self._command(PublishType.PUBLISH, messages, topic, options)
        sent: Sequence[SendReceipt]
        sent = await self._basic_publish_batch(command, producer=self._producer)
        return sent

    async def request(  # type: ignore[override]
        self, message: Any = None, topic: str = "", **options: Unpack[PublishOptions]
    ) -> RocketMessage:
        """Publish a message and return the reply of its handler. Raises TimeoutError."""
        command = self._command(PublishType.REQUEST, [message], topic, options)
        reply: RocketMessage = await self._basic_request(command, producer=self._producer)
        return reply

    def _command(
        self, kind: PublishType, bodies: Sequence[Any], topic: str, options: PublishOptions
    ) -> RocketPublishCommand:
        options.setdefault("correlation_id", self.config.id_generator())
        return RocketPublishCommand(*bodies, destination=topic, _publish_type=kind, **options)


class MessageLogger(DefaultLoggerStorage):
    """Makes the logger of a broker's messages: their topic and the start of their id."""

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Nothing of the format depends on the subscribers."""

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        """The logger, made at its first use."""
        logger = self._get_logger_ref() or get_broker_logger(
            name="rocketmq",
            default_context={"topic": ""},
            message_id_ln=32,
            fmt="%(asctime)s %(levelname)-8s - %(topic)s | %(message_id)-32s - %(message)s",
            context=context,
            log_level=self.logger_log_level,
        )
        logger.addFilter(escape_record)
        self._logger_ref.add(logger)
        return logger
