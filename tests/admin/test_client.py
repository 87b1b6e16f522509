import pytest
from tests.admin.conftest import ClusterWithAdmin, open_cluster

from roquet.admin import dead_letters, groups, topics
from roquet.admin.brokers import statuses
from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.model.errors import CallRefused, ConfigError, ConnectFailed, RoquetError, UsageError
from roquet.testing.clock import this_loop
from roquet.testing.cluster import cluster
from roquet.wire.calls.admin.group import GetConnections
from roquet.wire.calls.admin.topic import GetGroups
from roquet.wire.signing import Credentials

pytestmark = pytest.mark.virtual_time


def reach_of(namesrv: str) -> AdminClient:
    return AdminClient(namesrv, ClientConfig(clock=this_loop().clock))


async def test_all_brokers_are_found_and_asked() -> None:
    clock = this_loop().clock
    async with cluster(brokers=2, clock=clock) as running, reach_of(running.namesrv_addr) as admin:
        brokers = await admin.brokers()
        assert brokers == dict(zip(["broker-a", "broker-b"], running.broker_addrs, strict=True))
        answers, failed = await admin.ask_each(brokers, GetGroups())
        assert (list(answers), failed) == (["broker-a", "broker-b"], {})


async def test_silent_brokers_are_named_with_the_reason() -> None:
    clock = this_loop().clock
    async with cluster(brokers=2, clock=clock) as running, reach_of(running.namesrv_addr) as admin:
        brokers = await admin.brokers()
        await running.stop_broker(1)
        answers, failed = await admin.ask_each(brokers, GetConnections(consumer_group="g"))
        assert answers == {}
        assert isinstance(failed["broker-a"], CallRefused)
        assert isinstance(failed["broker-b"], ConnectFailed)


async def test_all_topics_are_known() -> None:
    clock = this_loop().clock
    async with cluster(clock=clock) as running, reach_of(running.namesrv_addr) as admin:
        assert "TBW102" in await admin.topics()


async def test_without_brokers_the_error_names_that_instead_of_an_empty_list() -> None:
    clock = this_loop().clock
    async with cluster(brokers=0, clock=clock) as running, reach_of(running.namesrv_addr) as admin:
        for ask in (
            admin.brokers(),
            admin.cluster(),
            admin.topics(),
            admin.known_route("orders"),
            topics.list_names(admin),
            topics.list_names(admin, system=True),
            topics.create(admin, "orders", topics.TopicSettings()),
            groups.create(admin, "g", {}),
            groups.summaries(admin),
            dead_letters.groups(running.namesrv_addr),
            statuses(admin),
        ):
            with pytest.raises(RoquetError, match="the name servers know of no broker"):
                await ask


async def test_an_error_without_a_name_server_names_what_to_do() -> None:
    async with reach_of("127.0.0.1:1") as admin:
        with pytest.raises(ConnectFailed, match="no name server answered"):
            await admin.brokers()


async def test_a_name_server_that_refuses_is_not_said_to_be_away() -> None:
    clock = this_loop().clock
    user = Credentials(access_key="root", secret_key="rootsecret")
    async with (
        cluster(clock=clock, authentication_enabled=True, initial_user=user) as running,
        reach_of(running.broker_addrs[0]) as admin,
    ):
        with pytest.raises(ConnectFailed, match=r"the name server at .* refuses: code ") as caught:
            await admin.brokers()
        assert "is it running" not in str(caught.value)


def test_an_invalid_address_is_refused() -> None:
    with pytest.raises(ConfigError):
        AdminClient("nowhere")


async def test_an_unknown_topic_is_refused_with_a_similar_name(cluster: ClusterWithAdmin) -> None:
    await topics.create(cluster.admin, "orders", topics.TopicSettings())
    assert (await cluster.admin.known_route("orders")).queue_datas
    with pytest.raises(UsageError, match=r"a topic 'ordesr'; did you mean 'orders'\?"):
        await cluster.admin.known_route("ordesr")


async def test_questions_go_to_a_replica_and_changes_to_a_leader_alone(
    cluster: ClusterWithAdmin,
) -> None:
    first, second = cluster.running.broker_addrs
    async with await cluster.add_replica("broker-z", second, "orders"):
        leaders = {"broker-a": first, "broker-b": second}
        assert await cluster.admin.brokers() == {**leaders, "broker-z": second}
        assert await cluster.admin.leaders() == leaders
        with pytest.raises(
            RoquetError,
            match="made on broker-a, broker-b, but not everywhere: "
            "broker-z: the master of broker-z is away, and its replicas take no changes",
        ):
            await groups.create(cluster.admin, "g", {})
        with pytest.raises(ConnectFailed, match="the master of broker-z is away"):
            await topics.delete(cluster.admin, "orders")


async def test_replicas_of_a_broker_get_no_changes() -> None:
    async with open_cluster() as it, await it.add_replica("broker-a", "127.0.0.1:1"):
        done = await topics.create(it.admin, "orders", topics.TopicSettings())
        assert done == ["broker-a", "broker-b"]
