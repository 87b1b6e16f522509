from typing import Any

import pytest
from tests.admin.conftest import ClusterWithAdmin

from roquet.admin import brokers, cluster_health
from roquet.admin.brokers import BrokerStatus
from roquet.admin.cluster_health import ClusterFacts, problems
from roquet.admin.replicas import ReplicaStatus
from roquet.admin.topics import TopicSettings
from roquet.admin.topics import create as create_topic
from roquet.model.route import BrokerData, ClusterInfo
from roquet.wire.calls.admin.namesrv import ForgetTopic

PLACE = {"cluster": "c", "broker": "broker-a", "broker_id": 0, "address": "h:1"}


def known(*names: str, **more: dict[int, str]) -> ClusterInfo:
    """Brokers that a name server knows: masters by name, others by their addresses."""
    addresses = {**{name: {0: "h:1"} for name in names}, **more}
    table = {name: BrokerData(broker_name=name, broker_addrs=a) for name, a in addresses.items()}
    return ClusterInfo(broker_addr_table=table)


def facts(**fields: Any) -> ClusterFacts:
    return ClusterFacts(**{"name_servers": {"n:1": known("broker-a")}, **fields})


def status(**info: str) -> BrokerStatus:
    return BrokerStatus(**PLACE, info=info)  # type: ignore[arg-type]


def test_a_cluster_that_answers_as_it_should_has_no_problem() -> None:
    whole = facts(
        brokers=[status(commitLogDiskRatio="0.84", brokerActive="true")],
        permissions={"broker-a": "6"},
        topics={"broker-a": {"orders"}},
        routed_topics={"orders", "others"},
    )
    assert problems(whole) == problems(whole, 1) == []


def test_name_servers_that_are_silent_or_lack_a_broker_are_named() -> None:
    differing = facts(
        name_servers={"n:1": known("broker-a", "broker-b"), "n:2": known("broker-a")},
        silent_name_servers={"n:3": "refused"},
    )
    assert problems(differing) == [
        "name server n:3 does not answer: refused",
        "broker-b#0 at h:1 is not registered at name server n:2",
    ]
    alone = ClusterFacts(name_servers={}, silent_name_servers={"n:3": "refused"})
    assert problems(alone, 3) == ["name server n:3 does not answer: refused"]


@pytest.mark.parametrize(
    ("name_server", "expected", "lines"),
    [
        (known(), 1, ["no broker with a master"]),
        (known("broker-a"), 1, []),
        (known("broker-a"), 2, ["1 broker with a master, and there have to be 2"]),
        (known("broker-a", b={1: "h:2"}), 2, ["1 broker with a master, and there have to be 2"]),
        (known("broker-a", "broker-b"), 1, []),
    ],
)
def test_brokers_without_a_master_do_not_count(
    name_server: ClusterInfo, expected: int, lines: list[str]
) -> None:
    assert problems(facts(name_servers={"n:1": name_server}), expected) == lines


def test_a_broker_with_a_full_disk_or_one_that_takes_nothing_is_named() -> None:
    full = status(commitLogDiskRatio="0.85", brokerActive="false")
    assert problems(facts(brokers=[full], permissions={"broker-a": "4", "broker-b": "6"})) == [
        "broker-a#0: 85% of its disk is in use",
        "broker-a#0 is not active: it serves nobody",
        "broker-a takes no messages: brokerPermission is 4, as while it is drained",
    ]


def test_replicas_and_masters_that_are_away_are_those_of_cluster_replicas() -> None:
    replica = ReplicaStatus(
        broker="broker-a", broker_id=1, address="h:2", is_master=False, is_in_sync=False
    )
    assert problems(facts(replicas=[replica])) == [
        "broker-a: the master is away, so no message is taken",
        "broker-a 1 at h:2 is not in sync",
    ]


def test_topics_that_name_servers_do_not_know_are_named_and_many_are_counted() -> None:
    lost = facts(topics={"broker-a": {f"t{n}" for n in range(5)}}, routed_topics={"t0"})
    assert problems(lost) == [
        "no route to t1, t2, t3 and 1 more: broker-a has it, and the name servers do not know that"
    ]


@pytest.mark.virtual_time
async def test_a_running_cluster_is_healthy_until_something_is_wrong(
    cluster: ClusterWithAdmin,
) -> None:
    await create_topic(cluster.admin, "orders", TopicSettings(read_queues=1, write_queues=1))
    await cluster.settle()
    found = await cluster_health.ask(cluster.admin)
    assert problems(found, 2) == []
    assert found.masters == 2
    assert "orders" in found.topics["broker-a"] & found.routed_topics
    await brokers.configure(cluster.admin, "broker-b", {"brokerPermission": "4"})
    await cluster.admin.ask_name_servers(ForgetTopic(topic="orders"))
    wrong = problems(await cluster_health.ask(cluster.admin), 2)
    assert "broker-b takes no messages: brokerPermission is 4, as while it is drained" in wrong
    assert any(line.startswith("no route to orders: broker-a has it") for line in wrong)
