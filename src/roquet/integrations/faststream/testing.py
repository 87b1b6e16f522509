"""TestRocketBroker: delivers messages to a broker's subscribers in memory, for tests."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from faststream._internal.testing.broker import TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from roquet.client import (
    Message,
    MessageQueue,
    ProducerConfig,
    ReceivedMessage,
    ReplyMessage,
    SendReceipt,
    SendStatus,
)
from roquet.client.connection.identity import MessageIdGenerator
from roquet.client.reading.message import InboundMessage
from roquet.client.sending.prepare import MessagePreparer
from roquet.integrations.faststream.broker import RocketBroker
from roquet.integrations.faststream.messages import RocketPublishCommand
from roquet.integrations.faststream.producer import RocketProducer
from roquet.integrations.faststream.publisher import RocketPublisher
from roquet.integrations.faststream.subscriber import RocketSubscriber
from roquet.net.clock import SYSTEM_CLOCK
from roquet.wire.records.record import Record

HOST = bytes([127, 0, 0, 1, 0, 0, 0, 0])


class TestRocketBroker(TestBroker[RocketBroker, RocketBroker], broker=RocketBroker):
    """Runs a broker's handlers when messages are published, without a server.

    Each group gets a message once, if its filter takes it. Handlers' errors are raised by the
    publish. There are no delays, retries or dead letters: `with_real=True` uses the real cluster.
    """

    @contextmanager
    def _patch_producer(self, broker: RocketBroker) -> Iterator[None]:
        config = broker.config.broker_config
        config.is_in_memory = True
        try:
            with change_producer(config, MemoryProducer(broker, self.brokers)):
                yield
        finally:
            config.is_in_memory = False

    async def _fake_connect(self, broker: RocketBroker, *_: Any, **__: Any) -> Any:
        return broker.config.producer

    def create_publisher_fake_subscriber(
        self, broker: RocketBroker, publisher: RocketPublisher
    ) -> tuple[RocketSubscriber, bool]:
        """The subscriber of a publisher's topic, and whether it is one of the application's."""
        for each in (each for known in self.brokers for each in known.rocket_subscribers):
            if publisher.topic in each.settings.full_topics:
                return each, True
        group = f"test-of-{publisher.topic}"
        return broker.subscriber(publisher.topic, group=group, persistent=False), False


class MemoryProducer(RocketProducer):
    """Hands messages to the subscribers of some brokers, as their filters choose."""

    def __init__(self, broker: RocketBroker, brokers: Sequence[RocketBroker]) -> None:
        config = broker.config
        super().__init__(config.broker_parser, config.broker_decoder, config.broker_codec)
        self.serializer = config.fd_config._serializer
        self._brokers = brokers
        self._offsets = count()
        ids = MessageIdGenerator("127.0.0.1", 1, 1)
        self._preparer = MessagePreparer(ids, ProducerConfig())
        self._clock = SYSTEM_CLOCK

    async def publish(self, cmd: RocketPublishCommand) -> SendReceipt | bool:
        """Let the handlers of a message end."""
        message = await self.encode(cmd)
        if cmd.request is not None:
            return True  # `request` returns the handler's result itself
        return (await self._deliver([message]))[0]

    async def publish_batch(self, cmd: RocketPublishCommand) -> Sequence[SendReceipt]:
        """Let the handlers of messages end; a batch subscriber gets them as one batch."""
        return await self._deliver(await self.encode_batch(cmd))

    async def request(self, cmd: RocketPublishCommand) -> ReplyMessage:
        """Return the result of the first subscriber of the topic."""
        [raw] = self._received([await self.encode(cmd)])
        for each in self._takers(raw):
            async with asyncio.timeout(cmd.timeout_s):
                result = await each.process_message([raw] if each.is_batch else raw)
            command = RocketPublishCommand.from_cmd(result.as_publish_command())
            command.destination = cmd.destination
            reply = await self.encode(command)
            return ReplyMessage(body=reply.body, properties=reply.properties)
        raise SubscriberNotFound(f"no subscriber takes requests to {cmd.destination}")

    async def _deliver(self, messages: Sequence[Message]) -> Sequence[SendReceipt]:
        batch = self._received(messages)
        for each in self._takers(batch[0]) if batch else []:
            taken = [raw for raw in batch if each.settings.takes(raw)]
            for raw in [taken] if each.is_batch else taken:
                await each.process_message(raw)
        return [_receipt(raw) for raw in batch]

    def _takers(self, raw: ReceivedMessage) -> Iterator[RocketSubscriber]:
        """One subscriber of each group that has the topic."""
        groups = set()
        for each in (each for known in self._brokers for each in known.rocket_subscribers):
            group = each.settings.group
            if raw.topic in each.settings.full_topics and group not in groups:
                groups |= {group} - {None}
                yield each

    def _received(self, messages: Sequence[Message]) -> list[ReceivedMessage]:
        """The messages as a consumer would get them, with the checks of a producer."""
        return [self._receive(message, next(self._offsets)) for message in messages]

    def _receive(self, message: Message, offset: int) -> ReceivedMessage:
        sent = self._preparer.prepare(message, self._clock.now_ms())
        record = Record(
            topic=sent.topic,
            queue_id=0,
            queue_offset=offset,
            position=0,
            size=sent.batch_size,
            body=sent.body,
            properties=sent.properties.encode("utf-8", "surrogatepass"),
            flag=sent.flag,
            sys_flag=0,
            born_ms=sent.born_ms,
            born_host=HOST,
            stored_ms=sent.born_ms,
            store_host=HOST,
            reconsume_times=0,
            prepared_position=0,
            crc=0,
        )
        return ReceivedMessage(MessageQueue(sent.topic, "memory", 0), record, MemoryQueue())


class MemoryQueue:
    """Owner of messages in memory, where nothing follows from how they are settled."""

    is_held = True

    def finish(self, message: InboundMessage) -> None:
        """Do nothing."""

    def retry(self, message: InboundMessage, delay_ms: int | None) -> None:
        """Do nothing."""


def _receipt(raw: ReceivedMessage) -> SendReceipt:
    return SendReceipt(
        status=SendStatus.SEND_OK,
        message_id=raw.message_id,
        offset_message_id=raw.offset_message_id,
        queue=raw.queue,
        queue_offset=raw.queue_offset,
    )
