"""Members at proxies: whom a broker asks, and what it makes of the answers."""

import asyncio
from typing import Any

import pytest
from tests.broker.conftest import FakePeer, LocalBroker, heartbeat_of, refuses

from roquet.broker.operations import proxied_members
from roquet.broker.operations.proxied_members import ProxiedMembers
from roquet.model.errors import CallRefused, CallTimeout
from roquet.model.names import PROXY_GROUP
from roquet.model.subscription import ConsumeType, HeartbeatData, ProducerData, Subscription
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.client_forwarding import GetRunningInfo
from roquet.wire.calls.admin.group import GetConnections
from roquet.wire.calls.bodies import ClientConnection, ConsumerConnection
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

ASKED = GetConnections(consumer_group="billing")


def members(*client_ids: str) -> Reply:
    found = [ClientConnection(client_id=client_id) for client_id in client_ids]
    pops = ConsumeType.CONSUME_POP
    return Reply(body=codec.dumps(ConsumerConnection(connection_set=found, consume_type=pops)))


def proxy(broker: LocalBroker, answer: Reply | Exception, user: str = "") -> FakePeer:
    """A proxy that gives this answer to everything."""
    peer = FakePeer()
    peer.version = 513

    async def reply(_call: Call[Any], _timeout_ms: int) -> Reply:
        if isinstance(answer, Exception):
            raise answer
        return answer

    peer.reply_to = reply
    data = HeartbeatData(client_id="p", producer_data_set=[ProducerData(group_name=PROXY_GROUP)])
    broker.tables.clients.beat(peer, data, user)
    return peer


async def listed(broker: LocalBroker) -> ConsumerConnection:
    return codec.loads((await broker.ask(ASKED)).body, ConsumerConnection)


async def test_members_at_proxies_are_listed_beside_those_that_are_registered(
    broker: LocalBroker,
) -> None:
    broker.beat(heartbeat_of("c", Subscription(topic="orders")), FakePeer())
    proxy(broker, members("b", "d"))
    body = await listed(broker)
    assert [member.client_id for member in body.connection_set] == ["b", "c", "d"]
    assert body.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert list(body.subscription_table) == ["orders"]


async def test_a_group_is_not_online_when_no_proxy_knows_it_either(broker: LocalBroker) -> None:
    proxy(broker, CallRefused(ResponseCode.CONSUMER_NOT_ONLINE, "no"))
    with refuses(ResponseCode.CONSUMER_NOT_ONLINE):
        await broker.ask(ASKED)


@pytest.mark.parametrize(
    "answer",
    [
        CallTimeout("no answer"),
        CallRefused(ResponseCode.SYSTEM_ERROR, "it has a fault"),
        Reply(body=b"{"),
        Reply(body=b'{"connectionSet":7}'),
        members("x" * 100),
    ],
)
async def test_an_answer_that_cannot_be_used_hides_no_other(
    broker: LocalBroker, answer: Reply | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxied_members, "ANSWER_SIZE_MAX", 150)
    proxy(broker, members("b"))
    proxy(broker, answer)
    assert [member.client_id for member in (await listed(broker)).connection_set] == ["b"]


async def test_a_proxy_that_has_gone_is_not_asked(broker: LocalBroker) -> None:
    proxy(broker, members("b")).closed = True
    with refuses(ResponseCode.CONSUMER_NOT_ONLINE):
        broker.ask(ASKED)


async def test_no_more_than_so_many_proxies_are_asked(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxied_members, "PROXIES_MAX", 2)
    peers = [proxy(broker, members(str(number))) for number in range(3)]
    assert list(broker.make(ProxiedMembers).proxies("billing")) == peers[1:]


async def test_only_a_proxy_whose_user_may_consume_in_the_group_is_asked(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = [proxy(broker, members("b"), user) for user in ("bob", "eve")]
    kind = type(broker.access)
    monkeypatch.setattr(kind, "may_consume", lambda _, user, group, ip: (user, group) == BOB)
    assert list(broker.make(ProxiedMembers).proxies("billing")) == peers[:1]
    assert list(broker.make(ProxiedMembers).proxies("other")) == []


BOB = ("bob", "billing")


async def test_operators_requests_go_to_the_proxy_that_has_the_member(broker: LocalBroker) -> None:
    proxy(broker, members("a"))
    mine = proxy(broker, members("b"))
    calls: list[Call[Any]] = []
    known = mine.reply_to
    assert known is not None

    async def reply(call: Call[Any], timeout_ms: int) -> Reply:
        calls.append(call)
        if isinstance(call, GetRunningInfo):
            return Reply(body=b"doing well")
        return await asyncio.wait_for(known(call, timeout_ms), 1)

    mine.reply_to = reply
    call = GetRunningInfo(consumer_group="billing", client_id="b")
    assert (await broker.ask(call)).body == b"doing well"
    assert calls == [ASKED, call]
    with refuses(ResponseCode.SYSTEM_ERROR, "not online"):
        await broker.ask(GetRunningInfo(consumer_group="billing", client_id="c"))
