"""Hostile clients of the proxy: half-open connections, floods, odd requests and forged handles.

The proxy is a process of its own. After each attack it lives, holds little memory, has logged no
defect, and during it a good client's messages go through.
"""

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from harness.ports import free_port
from harness.processes import ROQUET
from harness.servers import DevServer, Server
from roquet.admin import topics
from roquet.admin.client import AdminClient
from roquet.admin.topics import TopicSettings
from roquet.net.clock import SYSTEM_CLOCK
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.service import NAME

pytestmark = pytest.mark.attack

MEMORY_MAX: Final = 400 * 1024 * 1024
WAIT_MS_MAX: Final = 8_000
"""For a good client's message: some seconds of a busy machine."""

COUNTS: Final = {"short": 200, "full": 2_000}
SEED: Final = 20_261_130

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
METHODS: Final = (
    "QueryRoute", "Heartbeat", "SendMessage", "QueryAssignment", "ReceiveMessage", "AckMessage",
    "ForwardMessageToDeadLetterQueue", "PullMessage", "UpdateOffset", "GetOffset", "QueryOffset",
    "EndTransaction", "Telemetry", "NotifyClientTermination", "ChangeInvisibleDuration",
    "RecallMessage", "SyncLiteSubscription", "Nonsense",
)  # fmt: skip


OPERATORS: Final = (
    "ListSubscription", "QueryMessage", "VerifyMessage", "AdminSendMessage", "ChangeLogLevel",
    "DescribeGroupAccumulation", "ResetGroupOffset",
)  # fmt: skip


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(
        ">I", stream
    ) + payload  # fmt: skip


DATA, HEADERS, SETTINGS, PUSH, PING, AWAY = 0, 1, 4, 5, 6, 7
BEGIN: Final = PREFACE + frame(SETTINGS)
CALL: Final = b"\x83\x86" + b"\x04\x01/" + b"\x01\x01x"
"""Headers, by literals: POST, http, path / and an authority."""

BEGINNINGS: Final[Sequence[bytes]] = (
    b"",
    PREFACE,
    PREFACE[:10],
    BEGIN,
    BEGIN + frame(HEADERS, 4, 1, CALL),
    BEGIN + frame(HEADERS, 0, 1, CALL),
    BEGIN + b"\xff\xff\xff" + frame(HEADERS, 4, 1)[3:],
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    b"\x16\x03\x01",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + BEGIN,
    b"\0" * 70_000,
)
"""Beginnings of connections that go no further."""

FLOODS: Final[Sequence[bytes]] = (
    frame(PING, 0, 0, bytes(8)),
    frame(DATA, 0, 1),
    frame(HEADERS, 4, 1, b"\xff\xff\xff\xff\xff\xff\x7f" * 20),
    frame(PUSH, 4, 1, bytes(4) + CALL),
    frame(AWAY, 0, 0, bytes(8)),
    frame(0x77, 0xFF, 3, b"x" * 100),
)
"""Frames that are sent again and again."""

FLOOD_SIZE: Final = 8 * 1024 * 1024
"""Bytes of one flood: a hundred thousand frames, and more of the small ones."""


class ProxyUnderAttack:
    """The proxy's process."""

    def __init__(self, server: Server, admin_port: int) -> None:
        self.server = server
        self.address, self.port = server.address, server.port
        self.admin = f"127.0.0.1:{admin_port}"

    def check(self) -> None:
        """It lives, is small, and has logged no defect."""
        status = Path(f"/proc/{self.server.pid}/status").read_text("utf-8")
        size = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        assert int(size.split()[1]) * 1024 < MEMORY_MAX
        assert "Traceback" not in self.server.output


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyUnderAttack]:
    folder, port, admin_port = tmp_path_factory.mktemp("proxy"), free_port(), free_port()
    with DevServer(folder, "--memory", "--advertise", "127.0.0.1") as cluster:
        asyncio.run(make_topics(cluster.address))
        where = ["--host", "127.0.0.1", "--port", str(port), "--admin-port", str(admin_port)]
        command = [*ROQUET, "proxy", "-n", cluster.address, *where]
        with Server(command, folder, "proxy", port, ready="proxy ready") as server:
            yield ProxyUnderAttack(server, admin_port)


async def make_topics(namesrv: str) -> None:
    async with AdminClient(namesrv) as admin:
        await topics.create(admin, "good", TopicSettings())
        await topics.create(admin, "bad", TopicSettings())


async def call(
    channel: Any, method: str, body: bytes, *, seconds: float = 8, client: str = "a", more: str = ""
) -> Any:
    """The bytes of an answer; the last part of a stream."""
    metadata = (("x-mq-client-id", client), ("x-mq-language", more))
    path = f"/{NAME}/{method}"
    if method in ("ReceiveMessage", "PullMessage"):
        last = b""
        async for part in channel.unary_stream(path)(body, timeout=seconds, metadata=metadata):
            last = part
        return last
    if method == "Telemetry":
        stream = channel.stream_stream(path)(iter([body]), timeout=seconds, metadata=metadata)
        return b"".join([part async for part in stream])
    return await channel.unary_unary(path)(body, timeout=seconds, metadata=metadata)


class GoodClient:
    """A client that sends, receives and acknowledges a message again and again."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.slowest_ms = 0
        self.count = 0

    async def run(self) -> None:
        async with grpc.aio.insecure_channel(self._address) as channel:
            settings = pb.Settings(client_type="SIMPLE_CONSUMER")
            settings.subscription.group.name = "good"
            settings.subscription.subscriptions.add().topic.name = "good"
            first = service.TelemetryCommand(settings=settings).SerializeToString()
            telemetry: Any = channel.stream_stream(f"/{NAME}/Telemetry")(
                metadata=(("x-mq-client-id", "good"),)
            )
            await telemetry.write(first)
            await telemetry.read()
            while True:
                begun_ms = SYSTEM_CLOCK.monotonic_ms()
                await self._round(channel)
                self.slowest_ms = max(self.slowest_ms, SYSTEM_CLOCK.monotonic_ms() - begun_ms)
                self.count += 1
                await asyncio.sleep(0.2)

    async def _round(self, channel: Any) -> None:
        message = pb.Message(topic=pb.Resource(name="good"), body=b"x")
        message.system_properties.message_id = f"ID{self.count}"
        request = service.SendMessageRequest(messages=[message])
        answer = await call(channel, "SendMessage", request.SerializeToString(), client="good")
        status = service.SendMessageResponse.FromString(answer).status
        assert status.code == pb.OK, status.message


@asynccontextmanager
async def a_good_client(proxy: ProxyUnderAttack) -> AsyncIterator[None]:
    """A client whose messages have to go through while the block runs, and behind it."""
    client = GoodClient(proxy.address)
    running = asyncio.create_task(client.run())
    await asyncio.sleep(1)
    yield
    await asyncio.sleep(1)
    assert not running.done(), running.exception()
    running.cancel()
    assert client.count > 2
    assert client.slowest_ms < WAIT_MS_MAX
    proxy.check()


async def test_connections_that_go_no_further_keep_nobody_out(
    proxy: ProxyUnderAttack, depth: str
) -> None:
    held: list[socket.socket] = []
    async with a_good_client(proxy):
        for number in range(COUNTS[depth]):
            one = socket.create_connection(("127.0.0.1", proxy.port))
            one.setblocking(False)
            held.append(one)
            with suppress(OSError):
                one.send(BEGINNINGS[number % len(BEGINNINGS)])
            if number % 50 == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(2)
    for one in held:
        one.close()


async def test_connections_that_are_reset_keep_nobody_out(
    proxy: ProxyUnderAttack, depth: str
) -> None:
    at_once = struct.pack("ii", 1, 0)
    async with a_good_client(proxy):
        for number in range(COUNTS[depth]):
            with suppress(OSError), socket.create_connection(("127.0.0.1", proxy.port)) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
                one.sendall(BEGIN + frame(PING, 0, 0, bytes(8)) * (number % 4))
                await asyncio.sleep(number % 4 / 1_000)


@pytest.mark.parametrize("number", range(len(FLOODS)))
async def test_a_flood_of_frames_keeps_nobody_out(proxy: ProxyUnderAttack, number: int) -> None:
    flood = FLOODS[number] * max(FLOOD_SIZE // 100 // len(FLOODS[number]), 1)
    async with a_good_client(proxy):
        for _ in range(4):
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            with suppress(OSError, TimeoutError):
                writer.write(BEGIN + frame(HEADERS, 4, 1, CALL))
                for _ in range(100):
                    writer.write(flood)
                    async with asyncio.timeout(2):
                        await writer.drain()
            writer.transport.abort()


async def test_odd_bytes_in_each_request_are_answered_or_refused(
    proxy: ProxyUnderAttack, depth: str
) -> None:
    rng = random.Random(SEED)
    bodies = [b"", b"\xff" * 100, b"\x0a" * 4_000_000, b"\x0a\xff\xff\xff\xff\x07" + b"x" * 100]
    bodies += [rng.randbytes(rng.randrange(200)) for _ in range(COUNTS[depth] // 10)]

    async def attempt(method: str) -> None:
        for body in bodies:
            with suppress(grpc.aio.AioRpcError):
                await call(channel, method, body, seconds=2)

    async with a_good_client(proxy), grpc.aio.insecure_channel(proxy.address) as channel:
        await asyncio.gather(*map(attempt, METHODS))


def entries(count: int) -> service.AckMessageRequest:
    request = service.AckMessageRequest(
        topic=pb.Resource(name="bad"), group=pb.Resource(name="bad")
    )
    for number in range(count):
        request.entries.add(message_id=str(number), receipt_handle=HANDLES[number % len(HANDLES)])
    return request


HANDLES: Final = (
    "",
    "x",
    "1 2 3",
    "0 1 60000 0 0 broker-a 0 0 0",
    "-1 -1 -1 -1 9 broker-a -1 -1 -1",
    f"0 {2**62} {2**62} 0 0 broker-a 0 {2**63} 0",
    "0 1 2 3 4 nobody 6 7 8",
    "٣ ٣ ٣ ٣ ٣ broker-a ٣ ٣ ٣",
    " " * 10_000,
    "1 " * 10_000,
)


async def test_forged_handles_settle_nothing_and_are_answered(proxy: ProxyUnderAttack) -> None:
    named: dict[str, Any] = {"topic": pb.Resource(name="bad"), "group": pb.Resource(name="bad")}
    topic, kinds = pb.Resource(name="bad"), service
    async with a_good_client(proxy), grpc.aio.insecure_channel(proxy.address) as channel:
        for handle in HANDLES:
            for method, request in (
                ("ChangeInvisibleDuration", kinds.ChangeInvisibleDurationRequest(
                    **named, receipt_handle=handle, message_id="m")),
                ("ForwardMessageToDeadLetterQueue", kinds.ForwardMessageToDeadLetterQueueRequest(
                    **named, receipt_handle=handle, message_id="m")),
                ("EndTransaction", kinds.EndTransactionRequest(
                    topic=topic, transaction_id=handle, resolution=pb.COMMIT)),
                ("RecallMessage", kinds.RecallMessageRequest(topic=topic, recall_handle=handle)),
            ):  # fmt: skip
                answer = await call(channel, method, request.SerializeToString())
                status = getattr(kinds, f"{method}Response").FromString(answer).status
                assert status.code not in (pb.OK, pb.CODE_UNSPECIFIED), (method, handle)
        answer = await call(channel, "AckMessage", entries(20).SerializeToString())
        assert len(kinds.AckMessageResponse.FromString(answer).entries) == 20


async def test_requests_of_the_worst_sizes_keep_nobody_out(proxy: ProxyUnderAttack) -> None:
    many = service.SendMessageRequest()
    for number in range(20_000):
        message = many.messages.add(topic=pb.Resource(name="bad"), body=b"x")
        message.system_properties.message_id = str(number)
    wide = pb.Message(topic=pb.Resource(name="bad"), body=b"x" * (5 << 20))
    wide.user_properties.update({str(n): "v" * 100 for n in range(10_000)})
    settings = pb.Settings(client_type="SIMPLE_CONSUMER")
    settings.subscription.group.name = "bad"
    for number in range(50_000):
        settings.subscription.subscriptions.add().topic.name = f"t{number}"
    worst = (
        ("SendMessage", many),
        ("SendMessage", service.SendMessageRequest(messages=[wide])),
        ("AckMessage", entries(20_000)),
        ("Telemetry", service.TelemetryCommand(settings=settings)),
    )
    async with a_good_client(proxy), grpc.aio.insecure_channel(proxy.address) as channel:
        for method, request in worst:
            with suppress(grpc.aio.AioRpcError):
                await call(channel, method, request.SerializeToString(), seconds=5)
        for size in (10_000, 1_000_000):
            with suppress(grpc.aio.AioRpcError):
                await call(channel, "QueryRoute", b"", more="x" * size)


async def test_streams_without_settings_keep_nobody_out(
    proxy: ProxyUnderAttack, depth: str
) -> None:
    path, count = f"/{NAME}/Telemetry", COUNTS[depth]
    async with a_good_client(proxy), grpc.aio.insecure_channel(proxy.address) as channel:
        streams: list[Any] = [
            channel.stream_stream(path)(metadata=(("x-mq-client-id", f"idle{number}"),))
            for number in range(count)
        ]
        receives = [
            asyncio.create_task(call(channel, "ReceiveMessage", b"", client=str(n)))
            for n in range(count)
        ]
        await asyncio.gather(*receives, return_exceptions=True)
        for stream in streams:
            stream.cancel()


async def test_odd_bytes_at_the_operators_port_are_answered_or_refused(
    proxy: ProxyUnderAttack,
) -> None:
    rng = random.Random(SEED)
    async with a_good_client(proxy), grpc.aio.insecure_channel(proxy.admin) as channel:
        for method in OPERATORS:
            ask: Any = channel.unary_unary(f"/apache.rocketmq.v2.Admin/{method}")
            for body in (b"", b"\xff" * 100, *(rng.randbytes(rng.randrange(60)) for _ in range(9))):
                with suppress(grpc.aio.AioRpcError):
                    await ask(body, timeout=5)
