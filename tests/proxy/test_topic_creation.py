"""Topics that the first message makes, as in `roquet dev`."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.proxy.conftest import User, consumer_settings, producer_settings, receive_request

from roquet.proxy.config import ProxyConfig
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.proxy import Proxy
from roquet.rules.message_type import ALL_TYPES
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster, cluster


@pytest.fixture
async def user(running: Cluster) -> AsyncIterator[User]:
    """A client of a proxy that makes topics."""
    config = ProxyConfig(clock=this_loop().clock, creates_topics=True)
    proxy = Proxy(running.namesrv_addr, config)
    proxy.start()
    yield User(proxy)
    await proxy.close()


async def types_of(user: User, topic: str) -> set[str]:
    request = service.QueryRouteRequest(topic=pb.Resource(name=topic))
    route = await user.call("QueryRoute", request)
    assert route.status.code == pb.OK
    assert {queue.permission for queue in route.message_queues} == {pb.READ_WRITE}
    kinds = {kind for queue in route.message_queues for kind in queue.accept_message_types}
    return {pb.MessageType.Name(kind) for kind in kinds}


async def test_the_first_message_decides_on_the_type_of_its_topic(user: User) -> None:
    async with user.telemetry(producer_settings("fresh")):
        assert await types_of(user, "fresh") == {kind.name for kind in ALL_TYPES}
        answer = await user.send("fresh", message_group="g", message_type="FIFO")
        assert answer.status.code == pb.OK
        assert await types_of(user, "fresh") == {"FIFO"}
        refused = await user.send("fresh")
    assert refused.status.code == pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert "takes FIFO messages, this is a NORMAL message" in refused.status.message


async def test_of_two_first_messages_one_decides(user: User) -> None:
    answers = await asyncio.gather(
        user.send("both", message_group="g"), user.send("both", b"urgent", priority=3)
    )
    assert [answer.status.code for answer in answers] == [
        pb.OK, pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ]  # fmt: skip


async def test_no_topic_is_made_where_brokers_let_no_client_make_one() -> None:
    clock = this_loop().clock
    async with cluster(clock=clock, auto_create_topic=False) as running:
        proxy = Proxy(running.namesrv_addr, ProxyConfig(clock=clock, creates_topics=True))
        proxy.start()
        user, request = User(proxy), service.QueryRouteRequest(topic=pb.Resource(name="fresh"))
        answers = [await user.call("QueryRoute", request), await user.send("fresh")]
        await proxy.close()
    assert {answer.status.code for answer in answers} == {pb.TOPIC_NOT_FOUND}


async def test_asking_for_topics_that_nobody_sends_to_leaves_nothing_behind(user: User) -> None:
    await types_of(user, "fresh")
    assert user.proxy.cluster.session.routes.writable("fresh") is None
    async with user.telemetry(consumer_settings(topic="fresh")):
        (status, *_) = await user.call("ReceiveMessage", receive_request("g", "fresh"), 30)
    assert status.status.code == pb.TOPIC_NOT_FOUND  # not FORBIDDEN, as a topic with no queue
