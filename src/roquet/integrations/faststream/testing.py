"""TestRocketBroker: delivers messages to a broker's subscribers in memory, for tests."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any
from unittest import mock

from faststream._internal.testing.broker import TestBroker
from faststream.exceptions import SubscriberNotFound

from roquet.client import (
    CallTimeout,
    Message,
    MessageQueue,
    ProducerConfig,
    ReceivedMessage,
    ReplyMessage,
    SendReceipt,
    SendStatus,
)
from roquet.client.connection.identity import MessageIdGenerator
from roquet.client.operator.broker_requests import ResultRecorder
from roquet.client.reading.message import InboundMessage, MessageContext
from roquet.client.reading.request_reply import with_system_properties
from roquet.client.sending.prepare import MessagePreparer
from roquet.integrations.faststream.broker import RocketBroker
from roquet.integrations.faststream.publisher import RocketPublisher
from roquet.integrations.faststream.subscriber import RocketSubscriber, RocketSubscriberConfig
from roquet.model.properties import REPLY_TO_CLIENT
from roquet.net.clock import SYSTEM_CLOCK
from roquet.rules import sql92
from roquet.rules.tag_filter import parse_tags
from roquet.wire.records import record

HOST = bytes([127, 0, 0, 1, 0, 0, 0, 0])


class TestRocketBroker(TestBroker[RocketBroker, RocketBroker], broker=RocketBroker):
    """Runs a broker's handlers when messages are published, without a server.

    Each group gets a message once, if its filter takes it. Handlers' errors are raised by the
    publish. There are no delays, retries or dead letters: `with_real=True` uses the real cluster.
    """

    @contextmanager
    def _patch_producer(self, broker: RocketBroker) -> Iterator[None]:
        config, client = broker.config.broker_config, MemoryClient(self.brokers)
        with (
            mock.patch.object(config, "is_in_memory", new=True),
            mock.patch.object(config.producer, "client", new=client),
        ):
            yield

    async def _fake_connect(self, broker: RocketBroker, *_: Any, **__: Any) -> Any:
        return broker.config.broker_config.producer.client

    def create_publisher_fake_subscriber(
        self, broker: RocketBroker, publisher: RocketPublisher
    ) -> tuple[RocketSubscriber, bool]:
        """The subscriber of a publisher's topic, and whether it is one of the application's."""
        topic = publisher.specification.topic
        for each in (each for known in self.brokers for each in known.rocket_subscribers):
            if topic in each.settings.full_topics:
                return each, True
        return broker.subscriber(topic, group=f"test-of-{topic}", persistent=False), False


class MemoryClient:
    """Hands messages to the subscribers of some brokers, as their filters choose.

    It has those methods of the client's producer that brokers use.
    """

    def __init__(self, brokers: Sequence[RocketBroker]) -> None:
        self._brokers = brokers
        self._offsets = count()
        ids = MessageIdGenerator("127.0.0.1", 1, 1)
        self._preparer = MessagePreparer(ids, ProducerConfig())

    async def send(self, message: Message) -> SendReceipt:
        """Let the handlers of a message end."""
        return (await self.send_many([message]))[0]

    async def send_many(self, messages: Sequence[Message]) -> Sequence[SendReceipt]:
        """Let the handlers of messages end; a batch subscriber gets them as one batch."""
        batch = [self._receive(message, FirstReply()) for message in messages]
        await self._deliver(batch)
        return [
            SendReceipt(
                status=SendStatus.SEND_OK,
                message_id=raw.message_id,
                offset_message_id=raw.offset_message_id,
                queue=raw.queue,
                queue_offset=raw.queue_offset,
            )
            for raw in batch
        ]

    async def request(self, message: Message, *, timeout_ms: int) -> ReplyMessage:
        """Let the handlers of a message end, and return the first reply."""
        replies = FirstReply()
        raw = self._receive(message, replies, {REPLY_TO_CLIENT: "memory"})
        async with asyncio.timeout(timeout_ms / 1000):
            if not await self._deliver([raw]):
                raise SubscriberNotFound(f"no subscriber takes requests to {message.topic}")
        if replies.message is None:
            raise CallTimeout(f"no handler has replied to the request to {message.topic}")
        return replies.message

    async def _deliver(self, batch: Sequence[ReceivedMessage]) -> bool:
        """Let the handlers of one subscriber of each group end; whether there were any."""
        groups, are_taken = set[str | None](), False
        for each in (each for known in self._brokers for each in known.rocket_subscribers):
            if each.settings.group in groups:
                continue
            taken = [raw for raw in batch if takes(each.settings, raw)]
            for raw in [taken] if taken and each.settings.is_batch else taken:
                are_taken = True
                groups |= {each.settings.group} - {None}
                await each.process_message(raw)
        return are_taken

    def _receive(
        self, message: Message, replies: "FirstReply", system: Mapping[str, str] | None = None
    ) -> ReceivedMessage:
        """The message as a consumer would get it, with the checks of a producer."""
        sent = self._preparer.prepare(message, SYSTEM_CLOCK.now_ms())
        sent = with_system_properties(sent, system or {})
        properties = sent.properties.encode("utf-8", "surrogatepass")
        stored = record.pack(
            0, sent.flag, next(self._offsets), 0, 0, sent.born_ms, HOST, sent.born_ms, HOST, 0, 0,
            sent.body, sent.topic.encode(), properties,
        )  # fmt: skip
        owner = ResultRecorder(MessageContext(replies=replies))
        return ReceivedMessage(MessageQueue(sent.topic, "memory", 0), record.decode(stored), owner)


class FirstReply:
    """Keeps the first reply to a request."""

    message: ReplyMessage | None = None

    async def reply(
        self, message: InboundMessage[Any], body: bytes, properties: Mapping[str, str]
    ) -> bool:
        """Keep a reply, unless there is one."""
        del message
        self.message = self.message or ReplyMessage(body=body, properties=properties)
        return True


def takes(settings: RocketSubscriberConfig, message: ReceivedMessage) -> bool:
    """Whether a subscriber's topics and filter take a message."""
    if message.topic not in settings.full_topics:
        return False
    if settings.sql is None:
        return (tags := parse_tags(settings.tags)) is None or message.tag in tags
    return sql92.matcher(sql92.parse(settings.sql), sql92.of_mapping)(message.properties)
