from collections.abc import Callable

import msgspec
import pytest
from tests.namesrv.conftest import FakePeer, of_broker

from roquet.model.errors import CallRefused
from roquet.model.route import QueueData, TopicRoute
from roquet.namesrv.handlers import registration, settings, topics
from roquet.namesrv.state import NameServerState
from roquet.net.router import HandlerReply
from roquet.wire.call import Reply
from roquet.wire.calls import route as calls
from roquet.wire.calls.admin import namesrv as admin
from roquet.wire.calls.bodies import TopicList
from roquet.wire.calls.route import RegisterBroker
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

Registers = Callable[..., RegisterBroker]


def route_of(state: NameServerState, topic: str) -> TopicRoute:
    reply = topics.route(state, calls.GetRoute(topic=topic), FakePeer())
    return codec.loads(reply.body, TopicRoute)


def test_a_registered_topic_has_a_route(state: NameServerState, peer: FakePeer) -> None:
    registration.register(state, of_broker("a", orders=4, x=1), peer)
    registration.register(state, of_broker("b", port=2, orders=2, x=1), peer)
    route = route_of(state, "orders")
    assert [(q.broker_name, q.write_queue_nums) for q in route.queue_datas] == [("a", 4), ("b", 2)]
    assert [b.broker_addrs for b in route.broker_datas] == [
        {0: "10.0.0.0:10911"},
        {0: "10.0.0.0:2"},
    ]


def test_a_topic_without_a_route_is_refused_as_genuine_clients_expect(
    state: NameServerState,
) -> None:
    with pytest.raises(CallRefused) as refusal:
        topics.route(state, calls.GetRoute(topic="nowhere"), FakePeer())
    assert refusal.value.code == ResponseCode.TOPIC_NOT_EXIST
    assert refusal.value.remark == (
        "No topic route info in name server for the topic: nowhere\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )


@pytest.mark.parametrize(
    ("version", "asked", "quoted"),
    [(400, None, False), (401, None, True), (317, True, True), (317, False, False)],
)
def test_only_clients_that_can_read_it_get_standard_json(
    state: NameServerState, version: int, asked: bool | None, quoted: bool
) -> None:
    registration.register(state, of_broker("a", orders=4, x=1), FakePeer())
    call = calls.GetRoute(topic="orders", accept_standard_json_only=asked)
    body = topics.route(state, call, FakePeer(version=version)).body
    assert (b'"brokerAddrs":{"0":"10.0.0.0:10911"}' in body) is quoted
    assert (b'"brokerAddrs":{0:"10.0.0.0:10911"}' in body) is not quoted


def test_the_cluster_is_told_in_javas_dialect(state: NameServerState, peer: FakePeer) -> None:
    registration.register(state, of_broker("a"), peer)
    reply = topics.cluster(state, calls.GetClusterInfo(), peer)
    assert isinstance(reply, Reply)
    body = reply.body
    assert b'"brokerAddrs":{0:"10.0.0.0:10911"}' in body
    assert b'"clusterAddrTable":{"c":["a"]}' in body


def test_all_topics_are_listed(state: NameServerState, peer: FakePeer) -> None:
    registration.register(state, of_broker("a", orders=4, x=1), peer)
    reply = topics.all_topics(state, calls.GetAllTopics(), peer)
    assert listed(reply) == ["orders", "x"]


def test_the_list_of_topics_can_be_kept_private(state: NameServerState) -> None:
    private = msgspec.structs.replace(
        state, config=msgspec.structs.replace(state.config, all_topics=False)
    )
    with pytest.raises(CallRefused, match="disable"):
        topics.all_topics(private, calls.GetAllTopics(), FakePeer())


def listed(reply: HandlerReply) -> list[str]:
    assert isinstance(reply, Reply)
    return codec.loads(reply.body, TopicList).topic_list


def permissions(state: NameServerState, topic: str) -> dict[str, int]:
    return {data.broker_name: data.perm for data in route_of(state, topic).queue_datas}


def test_write_permission_is_removed_until_it_is_restored(
    state: NameServerState, peer: FakePeer
) -> None:
    registration.register(state, of_broker("a", orders=4, x=1), peer)
    registration.register(state, of_broker("b", port=2, orders=4, x=1), peer)
    wiped = topics.wipe(state, admin.WipeWritePermission(broker_name="a"), peer)
    assert wiped.wipe_topic_count == 2
    assert permissions(state, "orders") == {"a": 4, "b": 6}
    registration.register(state, of_broker("a", orders=4, x=1), peer)
    assert permissions(state, "orders") == {"a": 4, "b": 6}, "the same edition again"
    added = topics.permit(state, admin.AddWritePermission(broker_name="a"), peer)
    assert added.add_topic_count == 2
    assert permissions(state, "orders") == {"a": 6, "b": 6}


def test_a_new_edition_of_the_topics_ends_it(state: NameServerState, peer: FakePeer) -> None:
    registration.register(state, of_broker("a", orders=4, x=1), peer)
    topics.wipe(state, admin.WipeWritePermission(broker_name="a"), peer)
    registration.register(state, of_broker("a", edition=2, orders=4, x=1), peer)
    assert permissions(state, "orders") == {"a": 6}


def test_an_unknown_broker_has_no_topics(state: NameServerState) -> None:
    call = admin.WipeWritePermission(broker_name="nobody")
    assert topics.wipe(state, call, FakePeer()).wipe_topic_count == 0


def test_a_topic_is_forgotten_in_one_cluster_or_everywhere(
    state: NameServerState, peer: FakePeer
) -> None:
    registration.register(state, of_broker("a", orders=4, x=1), peer)
    elsewhere = msgspec.structs.replace(of_broker("b", port=2, orders=4, x=1), cluster_name="d")
    registration.register(state, elsewhere, peer)
    topics.forget(state, admin.ForgetTopic(topic="orders", cluster_name="d"), peer)
    assert permissions(state, "orders") == {"a": 6}
    topics.forget(state, admin.ForgetTopic(topic="orders"), peer)
    with pytest.raises(CallRefused, match="No topic route info"):
        route_of(state, "orders")
    assert permissions(state, "x") == {"a": 6, "b": 6}


def test_a_topic_is_registered_by_hand_where_all_brokers_are_known(
    state: NameServerState, peer: FakePeer
) -> None:
    registration.register(state, of_broker("a", orders=4, x=1), peer)

    def register(topic: str, *brokers: str) -> None:
        queues = [
            QueueData(broker_name=name, read_queue_nums=3, write_queue_nums=2) for name in brokers
        ]
        body = codec.dumps(TopicRoute(queue_datas=queues))
        topics.register(state, admin.RegisterTopic(topic=topic, body=body), peer)

    register("new", "a")
    (data,) = route_of(state, "new").queue_datas
    assert (data.read_queue_nums, data.write_queue_nums, data.perm) == (3, 2, 6)
    register("other", "a", "nobody")
    with pytest.raises(CallRefused, match="No topic route info"):
        route_of(state, "other")
    topics.register(state, admin.RegisterTopic(topic="none"), peer)
    with pytest.raises(CallRefused, match="TopicRouteData"):
        topics.register(state, admin.RegisterTopic(topic="bad", body=b"[1"), peer)


def test_topics_are_listed_by_cluster(state: NameServerState, peer: FakePeer) -> None:
    registration.register(state, of_broker("a", orders=4, x=1), peer)
    call = admin.TopicsOfCluster(cluster="c")
    assert listed(topics.topics_of_cluster(state, call, peer)) == ["orders", "x"]
    call = admin.TopicsOfCluster(cluster="elsewhere")
    assert listed(topics.topics_of_cluster(state, call, peer)) == []


def test_the_systems_topics_are_named_after_clusters_and_brokers(
    state: NameServerState, peer: FakePeer
) -> None:
    empty = codec.loads(topics.system_topics(state, admin.SystemTopics(), peer).body, TopicList)
    assert (empty.topic_list, empty.broker_addr) == ([], None)
    registration.register(state, of_broker("a", orders=4, x=1), peer)
    found = codec.loads(topics.system_topics(state, admin.SystemTopics(), peer).body, TopicList)
    assert (found.topic_list, found.broker_addr) == (["a", "c"], "10.0.0.0:10911")


def test_topics_of_units_are_told_by_their_flags(state: NameServerState, peer: FakePeer) -> None:
    registration.register(state, of_broker("a", plain=1, unit=1, both=1, listened=1), peer)
    flags = {"unit": 1, "both": 3, "listened": 2}
    for name, flag in flags.items():
        data = QueueData(
            broker_name="a", read_queue_nums=1, write_queue_nums=1, topic_sys_flag=flag
        )
        body = codec.dumps(TopicRoute(queue_datas=[data]))
        topics.register(state, admin.RegisterTopic(topic=name, body=body), peer)
    assert listed(topics.unit_topics(state, admin.UnitTopics(), peer)) == ["both", "unit"]
    subscribed = topics.unit_subscribed(state, admin.UnitSubscribedTopics(), peer)
    assert listed(subscribed) == ["both", "listened"]
    others = topics.others_subscribed(state, admin.OthersSubscribedTopics(), peer)
    assert listed(others) == ["listened"]


def test_a_follower_that_acts_as_the_master_is_shown_as_one_when_a_setting_says_so(
    state: NameServerState, peer: FakePeer
) -> None:
    registration.register(state, of_broker("a", 1, acting=True), peer)
    true_ids = route_of(state, "orders")
    change = admin.UpdateNameServerSettings(body=b"supportActingMaster=true")
    settings.update(state, change, peer)
    shown = route_of(state, "orders")
    assert [route.broker_datas[0].broker_addrs for route in (true_ids, shown)] == [
        {1: "10.0.0.1:10911"},
        {0: "10.0.0.1:10911"},
    ]
    assert (shown.read_queues("orders") != [], shown.write_queues("orders")) == (True, [])
