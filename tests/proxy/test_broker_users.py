"""Users and policies that the proxy takes from its brokers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.proxy.conftest import User
from tests.proxy.test_access import alice, signed

from roquet.admin import access, topics
from roquet.admin.client import AdminClient
from roquet.admin.topics import TopicSettings
from roquet.client import ClientConfig
from roquet.model.access import PolicyType
from roquet.proxy.config import ProxyConfig
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.proxy import Proxy
from roquet.testing.clock import this_loop
from roquet.testing.cluster import Cluster, cluster
from roquet.wire.calls.access import PolicyEntryInfo
from roquet.wire.signing import Credentials

ROOT = Credentials(access_key="root", secret_key="rootsecret")


@pytest.fixture
async def guarded() -> AsyncIterator[Cluster]:
    """A cluster whose broker checks users."""
    settings: dict[str, Any] = {"authentication_enabled": True, "authorization_enabled": True}
    clock = this_loop().clock
    async with cluster(
        clock=clock, initial_user=ROOT, inner_credentials=ROOT, **settings
    ) as running:
        async with admin_of(running) as admin:
            wanted = TopicSettings(read_queues=1, write_queues=1)
            await topics.create(admin, "NORM", wanted)
            brokers = await access.every_broker(admin)
            call = access.user_call(
                "alice", create=True, password="alicesecret", user_type=None, status=None
            )
            await access.change(admin, brokers, call)
        yield running


def admin_of(running: Cluster) -> AdminClient:
    config = ClientConfig(clock=this_loop().clock, access_key="root", secret_key="rootsecret")
    return AdminClient(running.namesrv_addr, config)


def proxy_of(running: Cluster, user: str = "root") -> Proxy:
    config = ProxyConfig(
        clock=this_loop().clock, broker_users=True, access_key=user, secret_key=f"{user}secret"
    )
    made = Proxy(running.namesrv_addr, config)
    made.start()
    return made


async def test_users_of_the_brokers_are_users_of_the_proxy(guarded: Cluster) -> None:
    proxy, clock = proxy_of(guarded), this_loop().clock
    await clock.sleep(1_000)
    root = User(proxy, "r", **signed("root"))
    assert (await root.send("NORM")).status.code == pb.OK
    assert (await alice(proxy).send("NORM")).status.code == pb.FORBIDDEN
    assert (await User(proxy).send("NORM")).status.code == pb.UNAUTHORIZED
    async with admin_of(guarded) as admin:
        entry = PolicyEntryInfo(resource="Topic:NORM", actions=["Pub"], decision="Allow")
        call = access.policy_call("alice", [entry], PolicyType.CUSTOM, create=True)
        await access.change(admin, await access.every_broker(admin), call)
    await clock.sleep(6_000)
    assert (await alice(proxy).send("NORM")).status.code == pb.OK
    await guarded.stop_broker(0)
    await clock.sleep(20_000)  # the last answer counts
    assert (await User(proxy).send("NORM")).status.code == pb.UNAUTHORIZED
    await proxy.close()


async def test_before_the_first_answer_nobody_is_served_and_is_told_why(
    guarded: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = proxy_of(guarded, "alice")  # no super user: brokers show it no passwords
    await this_loop().clock.sleep(12_000)
    answer = await User(proxy, **signed("root")).send("NORM")
    assert answer.status.code == pb.INTERNAL_SERVER_ERROR
    assert "users are not known yet" in answer.status.message
    assert caplog.text.count("users and policies of the brokers: ") == 1
    await proxy.close()


async def test_a_cluster_without_brokers_tells_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(clock=this_loop().clock) as running:
        await running.stop_broker(0)
        proxy = proxy_of(running)
        await this_loop().clock.sleep(1_000)
        assert (await User(proxy).send("NORM")).status.code == pb.INTERNAL_SERVER_ERROR
        assert "the name servers know of no broker" in caplog.text
        await proxy.close()


async def test_settings_that_the_proxys_user_may_not_see_are_not_taken_for_none(
    guarded: Cluster,
) -> None:
    config = ProxyConfig(clock=this_loop().clock, access_key="alice", secret_key="alicesecret")
    proxy = Proxy(guarded.namesrv_addr, config)
    proxy.start()
    request = service.QueryRouteRequest(topic=pb.Resource(name="NORM"))
    answer = await User(proxy).call("QueryRoute", request)
    assert answer.status.code == pb.FORBIDDEN
    assert "User:alice has no permission" in answer.status.message
    await proxy.close()
