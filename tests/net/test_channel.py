"""Client channels to a real server on a real socket."""

import asyncio
import socket

import pytest
from tests.raising import raises

from roquet.model.errors import CallRefused, ConnectFailed, ConnectionLost
from roquet.net.channel import Channel
from roquet.net.router import Peer, Router
from roquet.net.server import Server
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.calls.heartbeat import ConsumersChanged
from roquet.wire.calls.route import DeleteKV, GetKV, GetRoute, ListKV, PutKV, ValueReply


async def test_a_call_is_its_own_reply_type(server: Server) -> None:
    async with await Channel.connect("127.0.0.1", server.port) as channel:
        reply = await channel.call(GetKV(namespace="echo", key="käse"))
    assert reply == ValueReply(value="käse")
    assert channel.closed


async def test_answers_overtake_each_other(server: Server) -> None:
    ends: list[str] = []

    async def ask(channel: Channel, topic: str) -> None:
        assert (await channel.call(GetRoute(topic=topic))).body == topic.encode()
        ends.append(topic)

    async with await Channel.connect("127.0.0.1", server.port) as channel:
        await asyncio.gather(ask(channel, "80"), ask(channel, "40"), ask(channel, "0"))
    assert ends == ["0", "40", "80"]


async def test_a_refusal_is_raised(server: Server) -> None:
    async with await Channel.connect("127.0.0.1", server.port) as channel:
        with raises(CallRefused, match="no namespace x", definite=True):
            await channel.call(GetKV(namespace="x", key="k"))
        with pytest.raises(CallRefused, match="request type 219 not supported"):
            await channel.call(ListKV(namespace="x"))
        with raises(CallRefused, match="ZeroDivisionError", definite=False):
            await channel.call(DeleteKV(namespace="x", key="k"))


async def test_oneway_calls_arrive_in_order(server: Server, kept: list[str]) -> None:
    async with await Channel.connect("127.0.0.1", server.port) as channel:
        for i in range(100):
            channel.oneway(PutKV(namespace="n", key="k", value=str(i)))
        await channel.call(GetKV(namespace="echo", key="after"))
    assert kept == [str(i) for i in range(100)]


async def test_the_server_may_ask_too(server: Server, router: Router) -> None:
    async def ask_back(call: ListKV, peer: Peer) -> ValueReply:
        peer.oneway(ConsumersChanged(consumer_group=call.namespace))
        return ValueReply(value=(await peer.call(GetKV(namespace="mine", key="k"))).value)

    heard: list[str] = []
    mine = Router()
    mine.add(GetKV, lambda call, peer: ValueReply(value=f"{call.namespace}/{call.key}"))
    mine.add(ConsumersChanged, lambda call, peer: heard.append(call.consumer_group))
    router.add(ListKV, ask_back)
    async with await Channel.connect("127.0.0.1", server.port, router=mine) as channel:
        await channel.call(ListKV(namespace="group"))
    assert heard == ["group"]


async def test_a_large_body_arrives_whole(server: Server, router: Router) -> None:
    body = bytes(range(256)) * 4 * 4096
    router.add(ListKV, lambda call, peer: ValueReply(body=call.body[::-1]))
    async with await Channel.connect("127.0.0.1", server.port) as channel:
        replies = await asyncio.gather(
            *(channel.call(ListKV(namespace="n", body=body), 30_000) for _ in range(4))
        )
    assert all(reply.body == body[::-1] for reply in replies)


async def test_a_server_that_goes_leaves_the_effect_unknown(server: Server) -> None:
    channel = await Channel.connect("127.0.0.1", server.port)
    call = asyncio.create_task(channel.call(GetRoute(topic="60000"), timeout_ms=60_000))
    await channel.call(GetKV(namespace="echo", key="k"))
    await server.stop(grace_ms=0)
    with raises(ConnectionLost, definite=False):
        await call
    with pytest.raises(ConnectFailed):
        await channel.call(GetRoute(topic="0"))


async def test_where_nobody_listens_there_is_no_channel() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with raises(ConnectFailed, match=f"cannot connect to 127.0.0.1:{port}", definite=True):
        await Channel.connect("127.0.0.1", port)


async def test_a_name_that_cannot_be_a_hosts_is_named() -> None:
    with pytest.raises(ConnectFailed, match=r"cannot connect to no\.\.host:1"):
        await Channel.connect("no..host", 1)


@in_virtual_time
async def test_a_host_that_does_not_answer_is_given_up() -> None:
    loop = this_loop()
    loop.network.partition("127.0.0.1", "10.0.0.1")
    with pytest.raises(ConnectFailed, match=r"10\.0\.0\.1:10911 did not answer within 700 ms"):
        await Channel.connect("10.0.0.1", 10911, clock=loop.clock, timeout_ms=700)
    assert loop.clock.monotonic_ms() == 700
