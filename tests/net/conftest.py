"""A small service to talk to: values at once, routes after a while."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from roquet.model.errors import CallRefused
from roquet.net.router import Peer, Router
from roquet.net.server import Server
from roquet.wire.call import Reply
from roquet.wire.calls.route import DeleteKV, GetKV, GetRoute, PutKV, ValueReply
from roquet.wire.codes import ResponseCode


def value(call: GetKV, peer: Peer) -> ValueReply:
    """At once: the key itself, for the namespace "echo"."""
    if call.namespace != "echo":
        raise CallRefused(ResponseCode.QUERY_NOT_FOUND, f"no namespace {call.namespace}")
    return ValueReply(value=call.key)


async def route(call: GetRoute, peer: Peer) -> Reply:
    """After as many milliseconds as the topic says."""
    await asyncio.sleep(int(call.topic) / 1000)
    return Reply(body=call.topic.encode())


def broken(call: DeleteKV, peer: Peer) -> Reply:
    raise ZeroDivisionError(call.key)


@pytest.fixture
def kept() -> list[str]:
    """What PutKV has told the service."""
    return []


@pytest.fixture
def router(kept: list[str]) -> Router:
    router = Router()
    router.add(GetKV, value)
    router.add(GetRoute, route)
    router.add(DeleteKV, broken)
    router.add(PutKV, lambda call, peer: kept.append(call.value))
    return router


@pytest.fixture
async def server(router: Router) -> AsyncIterator[Server]:
    """The service on a real socket."""
    async with Server(router, host="127.0.0.1") as server:
        yield server


@pytest.fixture
def address(server: Server) -> str:
    return f"127.0.0.1:{server.port}"
