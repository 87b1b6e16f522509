"""The plain socket, against a real server in another thread."""

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest
from tests.raising import raises

from roquet.model.errors import (
    CallRefused,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    RemoteProtocolError,
    UsageError,
)
from roquet.net.blocking import BUFFER_SIZE, BlockingChannel
from roquet.net.router import Peer, Router
from roquet.net.server import Server
from roquet.wire.call import Reply
from roquet.wire.calls.heartbeat import ConsumersChanged
from roquet.wire.calls.route import GetKV, GetRoute, ListKV, PutKV

ECHO = GetKV(namespace="echo", key="k")


def sized(call: ListKV, peer: Peer) -> Reply:
    """A body of as many bytes as the namespace says, behind a notice to the client."""
    peer.oneway(ConsumersChanged(consumer_group="g"))
    size = int(call.namespace)
    return Reply(body=bytes(i % 251 for i in range(size)))


@pytest.fixture
def address(router: Router) -> Iterator[str]:
    """The service on a real socket, on a thread of its own."""
    router.add(ListKV, sized)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> Server:
        server = Server(router, host="127.0.0.1")
        await server.start()
        return server

    server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    yield f"127.0.0.1:{server.port}"
    asyncio.run_coroutine_threadsafe(server.stop(0), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


class ScriptedServer:
    """A server that answers each connection with these bytes, then nothing."""

    def __init__(self, says: bytes, *, hangs_up: bool = True) -> None:
        self._says = says
        self._hangs_up = hangs_up
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "ScriptedServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(self._says)
            if not self._hangs_up:
                self._over.wait()


def test_calls_are_answered_one_after_another(address: str) -> None:
    with BlockingChannel(address) as channel:
        assert channel.call(ECHO).value == "k"
        assert channel.call(GetRoute(topic="1")).body == b"1"
        assert channel.call(PutKV(namespace="n", key="k", value="v")).code == 0
    assert channel.closed


@pytest.mark.parametrize("size", [0, 1, 1_000, BUFFER_SIZE - 50, BUFFER_SIZE, 5 * BUFFER_SIZE])
def test_a_body_is_a_view_into_the_buffer(address: str, size: int) -> None:
    with BlockingChannel(address, timeout_ms=30_000) as channel:
        for _ in range(2):
            reply = channel.call(ListKV(namespace=str(size)))
            assert isinstance(reply.body, memoryview)
            assert reply.body == bytes(i % 251 for i in range(size))
            assert reply.code == 0


def test_a_buffer_that_had_to_grow_leaves_the_old_body_alone(address: str) -> None:
    with BlockingChannel(address, timeout_ms=30_000) as channel:
        small = channel.call(ListKV(namespace="10")).body
        channel.call(ListKV(namespace=str(3 * BUFFER_SIZE)))
        assert len(small) == 10


def test_a_refusal_leaves_the_channel_open(address: str) -> None:
    with BlockingChannel(address) as channel:
        with pytest.raises(CallRefused, match="no namespace x"):
            channel.call(GetKV(namespace="x", key="k"))
        assert channel.call(ECHO).value == "k"


def test_no_answer_in_time_closes_the_channel(address: str) -> None:
    channel = BlockingChannel(address)
    with raises(CallTimeout, match=f"{address}: GetRoute: no answer within 50 ms", definite=False):
        channel.call(GetRoute(topic="2000"), timeout_ms=50)
    with pytest.raises(UsageError, match="closed: make a new one"):
        channel.call(ECHO)


def test_where_nobody_listens_there_is_no_channel() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with raises(ConnectFailed, match="cannot connect", definite=True):
        BlockingChannel(f"127.0.0.1:{port}")


@pytest.mark.parametrize("says", [b"", b"\x00\x00\x00\x40\x00\x00"])
def test_a_server_that_goes_leaves_the_effect_unknown(says: bytes) -> None:
    with ScriptedServer(says) as server:
        channel = BlockingChannel(server.address)
        with pytest.raises(ConnectionLost, match="closed the connection") as caught:
            channel.call(ECHO)
    assert not caught.value.definite
    assert channel.closed


def test_an_incomplete_reply_fails_the_call() -> None:
    with ScriptedServer(b"\x00\x00\x00\x40\x00\x00", hangs_up=False) as server:
        channel = BlockingChannel(server.address)
        with pytest.raises(CallTimeout):
            channel.call(ECHO, timeout_ms=50)


@pytest.mark.parametrize(
    "says",
    [b"\x7f\xff\xff\xff\x00\x00\x00\x00", b"\x00\x00\x00\x04\x00\x00\x00\x09", b"HTTP/1.1 400 Bad"],
)
def test_bytes_that_are_not_a_reply_close_the_channel(says: bytes) -> None:
    with ScriptedServer(says) as server:
        channel = BlockingChannel(server.address)
        with pytest.raises(RemoteProtocolError, match=f"{server.address}: frame of"):
            channel.call(ECHO)
    assert channel.closed


def test_a_prefetched_reply_is_returned_by_the_call(address: str) -> None:
    with BlockingChannel(address) as channel:
        first = channel.call(ListKV(namespace="10")).body
        channel.ask_ahead(ListKV(namespace="20"))
        assert first == bytes(range(10))  # not written over before the next call
        assert len(channel.call(ListKV(namespace="20")).body) == 20
        assert channel.call(ECHO).value == "k"


def test_a_prefetched_reply_may_be_left_unread(address: str) -> None:
    with BlockingChannel(address) as channel:
        channel.ask_ahead(ListKV(namespace="20"))
        channel.ask_ahead(ListKV(namespace="30"))  # one at a time
        assert channel.call(ECHO).value == "k"
        assert len(channel.call(ListKV(namespace="30")).body) == 30


def test_a_server_that_goes_is_noticed_by_the_call_and_not_before() -> None:
    with ScriptedServer(b"") as server:
        channel = BlockingChannel(server.address)
        channel.ask_ahead(ECHO)
        with pytest.raises(ConnectionLost):
            channel.call(ECHO)
        channel.ask_ahead(ECHO)
    assert channel.closed
