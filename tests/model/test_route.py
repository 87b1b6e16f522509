import msgspec
import pytest

from roquet.model.flags import Permission
from roquet.model.queue import MessageQueue
from roquet.model.route import BrokerData, ClusterInfo, QueueData, TopicRoute

A = BrokerData(cluster="C", broker_name="a", broker_addrs={0: "10.0.0.1:10911"})
B = BrokerData(cluster="C", broker_name="b", broker_addrs={1: "10.0.0.3:10911"})


def queues(broker: str, *, read: int, write: int, perm: int = 6) -> QueueData:
    return QueueData(broker_name=broker, read_queue_nums=read, write_queue_nums=write, perm=perm)


def test_the_leader_is_the_member_with_id_zero() -> None:
    assert A.leader == "10.0.0.1:10911"
    assert B.leader is None


def test_a_read_may_go_to_any_member_and_asks_the_lowest_id() -> None:
    both = BrokerData(cluster="C", broker_name="c", broker_addrs={2: "z:1", 1: "y:1"})
    assert both.any_address == "y:1"
    assert BrokerData(cluster="C", broker_name="d", broker_addrs={}).any_address is None


def test_messages_go_only_to_brokers_that_have_a_leader() -> None:
    route = TopicRoute(
        queue_datas=[queues("b", read=2, write=2), queues("a", read=3, write=2)],
        broker_datas=[A, B],
    )
    assert route.write_queues("t") == [MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)]
    assert [str(queue) for queue in route.read_queues("t")] == [
        *("t@a:0", "t@a:1", "t@a:2"),
        *("t@b:0", "t@b:1"),
    ]


def test_queues_come_sorted_as_numbers() -> None:
    route = TopicRoute(queue_datas=[queues("a", read=12, write=12)], broker_datas=[A])
    assert [queue.queue_id for queue in route.write_queues("t")] == list(range(12))


def test_a_topic_without_a_permission_has_no_queues_for_it() -> None:
    read_only = queues("a", read=1, write=1, perm=Permission.READ)
    write_only = queues("a", read=1, write=1, perm=Permission.WRITE)
    assert TopicRoute(queue_datas=[read_only], broker_datas=[A]).write_queues("t") == []
    assert TopicRoute(queue_datas=[write_only], broker_datas=[A]).read_queues("t") == []


def test_a_broker_is_found_by_its_name() -> None:
    route = TopicRoute(broker_datas=[A, B])
    assert route.broker("b") is B
    assert route.broker("c") is None


def test_a_standard_json_route_of_java_is_read() -> None:
    java = b"""{"brokerDatas":[{"brokerAddrs":{"0":"192.168.0.177:10911"},"brokerName":"broker-a",
    "cluster":"DefaultCluster","enableActingMaster":false,"zoneName":"zoneName2"}],
    "filterServerTable":{},"orderTopicConf":"Topic3","queueDatas":[{"brokerName":"broker-d",
    "perm":6,"readQueueNums":42,"topicSysFlag":109,"writeQueueNums":7}],"unknownToUs":{}}"""
    route = msgspec.json.decode(java, type=TopicRoute)
    assert route.order_topic_conf == "Topic3"
    assert route.broker_datas[0].leader == "192.168.0.177:10911"
    assert route.queue_datas == [
        QueueData(
            broker_name="broker-d",
            read_queue_nums=42,
            write_queue_nums=7,
            perm=6,
            topic_sys_flag=109,
        )
    ]


def test_a_cluster_without_brokers_is_empty() -> None:
    assert msgspec.json.decode(b"{}", type=ClusterInfo) == ClusterInfo()


def test_routes_never_share_their_lists() -> None:
    TopicRoute().queue_datas.append(queues("a", read=1, write=1))
    assert TopicRoute().queue_datas == []


def test_an_operators_order_says_which_queues_are_written_to_and_in_which_order() -> None:
    route = TopicRoute(
        order_topic_conf="b:2;gone:1;a:1",
        queue_datas=[queues("a", read=8, write=8), queues("b", read=8, write=8)],
        broker_datas=[A, B],
    )
    assert [(q.broker_name, q.queue_id) for q in route.write_queues("t")] == [
        ("b", 0), ("b", 1), ("gone", 0), ("a", 0),
    ]  # fmt: skip
    assert len(route.read_queues("t")) == 16


@pytest.mark.parametrize("conf", [None, "", ";", "Topic3", "a:x", "a:1;b", ":4", "a:-1", "a:²"])
def test_an_order_that_says_nothing_leaves_all_queues(conf: str | None) -> None:
    route = TopicRoute(
        order_topic_conf=conf, queue_datas=[queues("a", read=1, write=2)], broker_datas=[A]
    )
    assert len(route.write_queues("t")) == 2
