"""Calls to several members of etcd, of which some do not answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from tests.raising import raises

from roquet.controller.state_store.etcd_gateway import (
    EtcdGateway,
    KeyValue,
    RangeResponse,
    encoded,
    range_of,
)
from roquet.controller.state_store.interface import StateStoreError

NOBODY = "127.0.0.1:1"
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@asynccontextmanager
async def member(answer: bytes) -> AsyncIterator[str]:
    """Address of a member that answers each connection once."""
    tasks: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await asyncio.gather(*(task for task in tasks if task))


async def ranged(gateway: EtcdGateway) -> RangeResponse:
    return await gateway.call("/v3/kv/range", {}, RangeResponse)


async def test_a_member_that_is_away_is_left_for_the_next_one() -> None:
    async with member(EMPTY) as address:
        gateway = EtcdGateway([NOBODY, address])
        assert await ranged(gateway) == RangeResponse()
        await gateway.close()


async def test_without_any_member_nothing_was_written() -> None:
    gateway = EtcdGateway([NOBODY, NOBODY])
    with raises(StateStoreError, match="etcd does not answer: cannot connect", definite=True):
        await ranged(gateway)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 503 Unavailable\r\nContent-Length: 9\r\n\r\nno leader",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n" + b'{"error":"x"',
    ],
)
async def test_after_any_other_failure_the_result_is_unknown(answer: bytes) -> None:
    async with member(answer) as address:
        gateway = EtcdGateway([address])
        with raises(StateStoreError, match=f"etcd at {address}", definite=False):
            await ranged(gateway)
        await gateway.close()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429])
async def test_what_etcd_refuses_was_certainly_not_written(status: int) -> None:
    text = b"etcdserver: mvcc: database space exceeded"
    answer = b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%s" % (status, len(text), text)
    async with member(answer) as address:
        gateway = EtcdGateway([address])
        with raises(StateStoreError, match="space exceeded", definite=True):
            await ranged(gateway)
        await gateway.close()


async def test_after_a_failure_the_next_member_is_asked_first() -> None:
    async with member(b"") as broken, member(EMPTY) as healthy:
        gateway = EtcdGateway([broken, healthy])
        with pytest.raises(StateStoreError):
            await ranged(gateway)
        assert await ranged(gateway) == RangeResponse()
        await gateway.close()


def test_keys_and_values_are_base64() -> None:
    pair = KeyValue(key=encoded("/a/ü"), value=encoded("{}"))
    assert (pair.name, pair.data) == ("/a/ü", b"{}")
    assert KeyValue(key="/w==").name == "\ufffd", "somebody else's key"
    assert range_of("/a/") == {"key": encoded("/a/"), "range_end": encoded("/a0")}
