"""A proxy in front of a cluster in virtual time, and clients that call its methods without gRPC."""

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from roquet.admin import groups, topics
from roquet.admin.client import AdminClient
from roquet.admin.topics import TopicSettings
from roquet.client import ClientConfig, ConsumerConfig, PullConsumer
from roquet.model.message import StoredMessage
from roquet.proxy.config import ProxyConfig
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.proxy import Proxy
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster, cluster
from roquet.wire.proxy_signing import DATE_TIME


class Aborted(Exception):
    """The end of a stream with an error of gRPC's."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(code, details)
        self.code, self.details = code, details


class Context:
    """What gRPC says of a request."""

    def __init__(self, metadata: dict[str, str], timeout_s: float | None) -> None:
        self.metadata, self.timeout_s = metadata, timeout_s

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        return list(self.metadata.items())

    def peer(self) -> str:
        return "ipv4:10.0.0.7:4711"

    def time_remaining(self) -> float | None:
        return self.timeout_s

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted(code, details)


def authorization(access_key: str, secret: str, date_time: str) -> str:
    """The header by which a client signs."""
    made = hmac.digest(secret.encode(), date_time.encode(), "sha1").hex()
    return f"MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders={DATE_TIME}, Signature={made}"


class User:
    """A client of the proxy, as an official one behaves."""

    def __init__(self, proxy: Proxy, client_id: str | None = "user", **metadata: str) -> None:
        self.proxy = proxy
        self.metadata = {"x-mq-language": "PYTHON", "x-mq-client-version": "5.1.2", **metadata}
        if client_id is not None:
            self.metadata["x-mq-client-id"] = client_id
        self.told: list[service.TelemetryCommand] = []
        self.say: Callable[[service.TelemetryCommand], object] = lambda _: None
        """Send a command by the stream that was opened last."""

    def context(self, timeout_s: float | None) -> Context:
        return Context(self.metadata, timeout_s)

    async def call(self, name: str, request: Any, timeout_s: float | None = 3) -> Any:
        """The answer to a request; all parts of it where it is a stream."""
        method, context = self.proxy.methods[name], self.context(timeout_s)
        if method.unary_unary is not None:
            return await method.unary_unary(request, context)
        return [part async for part in method.unary_stream(request, context)]

    @asynccontextmanager
    async def telemetry(self, settings: pb.Settings) -> AsyncIterator[service.TelemetryCommand]:
        """A stream with settings, and the answer to them; commands come into `told`."""
        requests: asyncio.Queue[service.TelemetryCommand | None] = asyncio.Queue()
        requests.put_nowait(service.TelemetryCommand(settings=settings))
        self.say = requests.put_nowait

        async def ask() -> AsyncIterator[service.TelemetryCommand]:
            while (request := await requests.get()) is not None:
                yield request

        context = Context(self.metadata, None)
        answers = self.proxy.methods["Telemetry"].stream_stream(ask(), context)
        first = await anext(answers)

        async def read() -> None:
            async for command in answers:
                self.told.append(command)

        reading = asyncio.create_task(read())
        yield first
        requests.put_nowait(None)
        await reading

    async def send(self, topic: str, body: bytes = b"x", **system: Any) -> Any:
        """Send one message."""
        message = message_of(topic, body, **system)
        return await self.call("SendMessage", service.SendMessageRequest(messages=[message]))

    async def receive(
        self, group: str = "g", topic: str = "NORM", *, timeout_s: float = 30, **fields: Any
    ) -> list[pb.Message]:
        """The messages of one receive, each invisible for 15 s unless `fields` say otherwise."""
        request = receive_request(group, topic, **fields)
        parts = await self.call("ReceiveMessage", request, timeout_s)
        return [part.message for part in parts if part.HasField("message")]

    async def ack(self, *messages: pb.Message, group: str = "g", topic: str = "NORM") -> Any:
        request = service.AckMessageRequest(
            group=pb.Resource(name=group), topic=pb.Resource(name=topic)
        )
        for message in messages:
            system = message.system_properties
            request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        return await self.call("AckMessage", request)


async def stored(running: Cluster, topic: str) -> list[StoredMessage]:
    """All messages of a topic."""
    config = ConsumerConfig(clock=this_loop().clock)
    async with PullConsumer(running.namesrv_addr, group="reader", config=config) as puller:
        queues = await puller.queues(topic)
        return [message for queue in queues for message in (await puller.pull(queue, 0)).messages]


async def dead_letters(running: Cluster, group: str) -> list[StoredMessage]:
    """A group's dead letters."""
    return await stored(running, f"%DLQ%{group}")


def message_of(topic: str, body: bytes = b"x", **system: Any) -> pb.Message:
    """A message to send; `properties` are the user's, `deliver_ms` and the rest the system's."""
    properties = system.pop("properties", {})
    deliver_ms = system.pop("deliver_ms", None)
    message = pb.Message(topic=pb.Resource(name=topic), body=body, user_properties=properties)
    given = {"message_id": f"ID{this_loop().clock.now_ms()}{len(body)}", "message_type": "NORMAL"}
    message.system_properties.CopyFrom(pb.SystemProperties(**{**given, **system}))
    if deliver_ms is not None:
        message.system_properties.delivery_timestamp.FromMilliseconds(deliver_ms)
    return message


def receive_request(
    group: str, topic: str, *, invisible_ms: int = 15_000, count: int = 32, **fields: Any
) -> service.ReceiveMessageRequest:
    request = service.ReceiveMessageRequest(
        group=pb.Resource(name=group), batch_size=count, **fields
    )
    request.message_queue.topic.name = topic
    request.message_queue.broker.name = "broker-a"
    request.filter_expression.type = pb.TAG
    request.filter_expression.expression = request.filter_expression.expression or "*"
    request.invisible_duration.FromMilliseconds(invisible_ms)
    return request


def consumer_settings(group: str = "g", topic: str = "NORM", kind: Any = "SIMPLE_CONSUMER") -> Any:
    settings = pb.Settings(client_type=kind)
    settings.request_timeout.FromMilliseconds(3_000)
    settings.subscription.group.name = group
    settings.subscription.subscriptions.add().topic.name = topic
    return settings


def producer_settings(*topics: str) -> pb.Settings:
    settings = pb.Settings(client_type="PRODUCER")
    settings.publishing.topics.extend(pb.Resource(name=topic) for topic in topics)
    return settings


TYPES = {
    "NORM": None, "FIFOT": "FIFO", "DELAYT": "DELAY", "TXT": "TRANSACTION", "PRIT": "PRIORITY",
    "PROBE": None,
}  # fmt: skip


@pytest.fixture
async def running() -> AsyncIterator[Cluster]:
    """A cluster with a topic of each type and an ordered group."""
    clock = this_loop().clock
    async with cluster(clock=clock, broker_name="broker-a", recall_message=True) as started:
        async with AdminClient(started.namesrv_addr, ClientConfig(clock=clock)) as admin:
            for topic, kind in TYPES.items():
                attributes = None if kind is None else f"+message.type={kind}"
                settings = TopicSettings(read_queues=4, write_queues=4, attributes=attributes)
                await topics.create(admin, topic, settings)
            await groups.create(admin, "G_fifo", {"consume_message_orderly": True})
            await groups.create(admin, "G_few", {"retry_max_times": 2})
        yield started


@pytest.fixture
async def proxy(running: Cluster) -> AsyncIterator[Proxy]:
    """A proxy in front of that cluster."""
    made = Proxy(running.namesrv_addr, ProxyConfig(clock=this_loop().clock))
    made.start()
    yield made
    await made.close()
