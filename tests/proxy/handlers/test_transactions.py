"""Transactions through the proxy: ends by any proxy, and questions that reach a producer."""

import asyncio
from typing import Any

import pytest
from tests.proxy.conftest import User, producer_settings, stored

from roquet.proxy.config import ProxyConfig
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.proxy import Proxy
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster


async def begin(user: User, body: bytes = b"x") -> str:
    """Send a half message; returns the transaction's id."""
    answer = await user.send("TXT", body, message_type="TRANSACTION")
    assert answer.status.code == pb.OK
    return str(answer.entries[0].transaction_id)


async def end(user: User, transaction_id: str, resolution: Any) -> Any:
    request = service.EndTransactionRequest(
        topic=pb.Resource(name="TXT"), transaction_id=transaction_id, resolution=resolution
    )
    return await user.call("EndTransaction", request)


async def bodies(running: Cluster) -> list[bytes]:
    return [message.body for message in await stored(running, "TXT")]


async def test_a_message_is_there_once_its_transaction_is_committed(
    running: Cluster, proxy: Proxy
) -> None:
    user = User(proxy)
    committed, rolled_back = await begin(user, b"in"), await begin(user, b"out")
    assert await bodies(running) == []
    assert (await end(user, committed, pb.COMMIT)).status.code == pb.OK
    assert (await end(user, rolled_back, pb.ROLLBACK)).status.code == pb.OK
    assert await bodies(running) == [b"in"]


async def test_a_proxy_ends_what_another_one_began_long_ago(running: Cluster, proxy: Proxy) -> None:
    begun = await begin(User(proxy))
    await asyncio.sleep(40)
    other = Proxy(running.namesrv_addr, ProxyConfig(clock=this_loop().clock))
    other.start()
    assert (await end(User(other), begun, pb.COMMIT)).status.code == pb.OK
    await other.close()
    assert await bodies(running) == [b"x"]


async def test_a_producer_is_asked_about_a_transaction_without_an_end(
    running: Cluster, proxy: Proxy
) -> None:
    user = User(proxy)
    async with user.telemetry(producer_settings("TXT")):
        await begin(user, b"orphan")
        while not user.told:
            await asyncio.sleep(10)
            await user.call("Heartbeat", service.HeartbeatRequest())
        question = user.told[0].recover_orphaned_transaction_command
        assert question.message.body == b"orphan"
        await end(user, question.transaction_id, pb.COMMIT)
    assert await bodies(running) == [b"orphan"]


@pytest.mark.parametrize("transaction_id", ["", "nope", "äöü", "MSAyIDM=", "LTEBMgEzAWI="])
async def test_an_id_of_no_transaction_is_refused(proxy: Proxy, transaction_id: str) -> None:
    answer = await end(User(proxy), transaction_id, pb.COMMIT)
    assert answer.status.code == pb.INVALID_TRANSACTION_ID


async def test_a_transaction_of_any_message_id_can_be_ended(running: Cluster, proxy: Proxy) -> None:
    user = User(proxy)
    answer = await user.send("TXT", message_id="an id", message_type="TRANSACTION")
    ended = await end(user, answer.entries[0].transaction_id, pb.COMMIT)
    assert ended.status.code == pb.OK
    assert await bodies(running) == [b"x"]


async def test_an_end_without_a_resolution_leaves_the_message_where_it_is(
    running: Cluster, proxy: Proxy
) -> None:
    user = User(proxy)
    begun = await begin(user)
    resolution = pb.TRANSACTION_RESOLUTION_UNSPECIFIED
    assert (await end(user, begun, resolution)).status.code == pb.OK
    assert await bodies(running) == []
    assert (await end(user, begun, pb.COMMIT)).status.code == pb.OK
    assert await bodies(running) == [b"x"]
