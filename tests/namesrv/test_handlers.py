import json
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from roquet.model.errors import CallRefused
from roquet.model.route import TopicRoute
from roquet.model.topic import DataVersion
from roquet.namesrv import handlers
from roquet.namesrv.handlers import HANDLERS, State
from roquet.wire import dialect
from roquet.wire.call import Call
from roquet.wire.calls import route as calls
from roquet.wire.calls.bodies import KVTable, TopicList
from roquet.wire.calls.route import RegisterBroker
from roquet.wire.codes import ResponseCode

Registers = Callable[..., RegisterBroker]


def route_of(state: State, topic: str, peer: Any) -> TopicRoute:
    reply = handlers.route(state, calls.GetRoute(topic=topic), peer)
    return dialect.loads(reply.body, TopicRoute)


def test_a_registered_topic_has_a_route(state: State, peer: Any, of_broker: Registers) -> None:
    handlers.register(state, of_broker("a", orders=4, x=1), peer)
    handlers.register(state, of_broker("b", port=2, orders=2, x=1), peer)
    route = route_of(state, "orders", peer)
    assert [(q.broker_name, q.write_queue_nums) for q in route.queue_datas] == [("a", 4), ("b", 2)]
    assert [b.broker_addrs for b in route.broker_datas] == [
        {0: "10.0.0.0:10911"},
        {0: "10.0.0.0:2"},
    ]


def test_a_topic_without_a_route_is_refused_as_genuine_clients_expect(
    state: State, peer: Any
) -> None:
    with pytest.raises(CallRefused) as refusal:
        handlers.route(state, calls.GetRoute(topic="nowhere"), peer)
    assert refusal.value.code == ResponseCode.TOPIC_NOT_EXIST
    assert refusal.value.remark == "No topic route info in name server for the topic: nowhere"


@pytest.mark.parametrize(
    ("version", "asked", "quoted"),
    [(400, None, False), (401, None, True), (317, True, True), (317, False, False)],
)
def test_only_clients_that_can_read_it_get_standard_json(
    state: State, dial: Any, of_broker: Registers, version: int, asked: bool | None, quoted: bool
) -> None:
    handlers.register(state, of_broker("a", orders=4, x=1), dial())
    call = calls.GetRoute(topic="orders", accept_standard_json_only=asked)
    body = handlers.route(state, call, dial(version=version)).body
    assert (b'"brokerAddrs":{"0":"10.0.0.0:10911"}' in body) is quoted
    assert (b'"brokerAddrs":{0:"10.0.0.0:10911"}' in body) is not quoted


def test_a_follower_learns_who_leads(state: State, peer: Any, of_broker: Registers) -> None:
    leader = handlers.register(state, of_broker("a", 0), peer)
    follower = handlers.register(state, of_broker("a", 1), peer)
    assert (leader.master_addr, leader.ha_server_addr) == (None, None)
    assert follower.master_addr == "10.0.0.0:10911"
    assert follower.ha_server_addr == "10.0.0.0:10912"


def test_a_damaged_registration_changes_nothing(
    state: State, peer: Any, of_broker: Registers
) -> None:
    wrong = msgspec.structs.replace(of_broker(), body_crc32=1)
    with pytest.raises(CallRefused, match="crc32 not match"):
        handlers.register(state, wrong, peer)
    torn = msgspec.structs.replace(of_broker(), body=b'{"topicConfig')
    with pytest.raises(CallRefused, match="decode RegisterBroker"):
        handlers.register(state, torn, peer)
    bomb = msgspec.structs.replace(
        of_broker(), compressed=True, body=zlib.compress(bytes(100 << 20))
    )
    with pytest.raises(CallRefused, match="beyond the limit"):
        handlers.register(state, bomb, peer)
    assert not state.brokers.registrations


def test_one_topic_of_an_unknown_broker_is_refused_so_that_it_registers_all(
    state: State, peer: Any, of_broker: Registers
) -> None:
    with pytest.raises(CallRefused, match="register broker failed"):
        handlers.register(state, of_broker(new=1), peer)


def test_a_broker_that_leaves_is_forgotten_at_once(
    state: State, peer: Any, of_broker: Registers
) -> None:
    handlers.register(state, of_broker("a"), peer)
    call = calls.UnregisterBroker(
        broker_name="a", broker_addr="10.0.0.0:10911", cluster_name="c", broker_id=0
    )
    handlers.unregister(state, call, peer)
    handlers.unregister(state, call, peer)
    assert not state.brokers.registrations


def test_the_cluster_is_told_in_javas_dialect(
    state: State, peer: Any, of_broker: Registers
) -> None:
    handlers.register(state, of_broker("a"), peer)
    body = handlers.cluster(state, calls.GetClusterInfo(), peer).body
    assert b'"brokerAddrs":{0:"10.0.0.0:10911"}' in body
    assert b'"clusterAddrTable":{"c":["a"]}' in body


def test_all_topics_are_listed(state: State, peer: Any, of_broker: Registers) -> None:
    handlers.register(state, of_broker("a", orders=4, x=1), peer)
    reply = handlers.all_topics(state, calls.GetAllTopics(), peer)
    assert dialect.loads(reply.body, TopicList).topic_list == ["orders", "x"]


def test_the_list_of_topics_can_be_kept_private(state: State, peer: Any) -> None:
    private = msgspec.structs.replace(
        state, config=msgspec.structs.replace(state.config, all_topics=False)
    )
    with pytest.raises(CallRefused, match="disable"):
        handlers.all_topics(private, calls.GetAllTopics(), peer)


def test_a_broker_asks_whether_its_edition_is_known(
    state: State, peer: Any, of_broker: Registers
) -> None:
    def asked(edition: int) -> calls.DataVersionReply:
        version = DataVersion(state_version=edition, counter=edition)
        call = calls.QueryDataVersion(
            broker_name="a",
            broker_addr="10.0.0.0:10911",
            cluster_name="c",
            broker_id=0,
            body=dialect.dumps(version),
        )
        return handlers.data_version(state, call, peer)

    assert (asked(1).changed, asked(1).body) == (True, b"")
    handlers.register(state, of_broker("a"), peer)
    assert not asked(1).changed
    assert asked(2).changed
    assert dialect.loads(asked(2).body, DataVersion) == DataVersion(state_version=1, counter=1)


def test_a_value_is_kept_listed_and_deleted(state: State, peer: Any) -> None:
    handlers.put_value(state, calls.PutKV(namespace="n", key="k", value="v"), peer)
    assert handlers.get_value(state, calls.GetKV(namespace="n", key="k"), peer).value == "v"
    listed = handlers.list_values(state, calls.ListKV(namespace="n"), peer)
    assert dialect.loads(listed.body, KVTable).table == {"k": "v"}
    handlers.delete_value(state, calls.DeleteKV(namespace="n", key="k"), peer)
    with pytest.raises(CallRefused) as refusal:
        handlers.get_value(state, calls.GetKV(namespace="n", key="k"), peer)
    assert refusal.value.code == ResponseCode.QUERY_NOT_FOUND
    with pytest.raises(CallRefused) as refusal:
        handlers.list_values(state, calls.ListKV(namespace="n"), peer)
    assert refusal.value.code == ResponseCode.QUERY_NOT_FOUND


def test_order_settings_reach_brokers_always_and_clients_when_asked_for(
    state: State, peer: Any, of_broker: Registers
) -> None:
    put = calls.PutKV(namespace="ORDER_TOPIC_CONFIG", key="orders", value="a:4")
    handlers.put_value(state, put, peer)
    reply = handlers.register(state, of_broker("a"), peer)
    assert json.loads(reply.body) == {"table": {"orders": "a:4"}}
    assert route_of(state, "orders", peer).order_topic_conf is None
    ordered = msgspec.structs.replace(
        state, config=msgspec.structs.replace(state.config, order_messages=True)
    )
    assert route_of(ordered, "orders", peer).order_topic_conf == "a:4"


def test_a_heartbeat_of_a_stranger_is_no_registration(state: State, peer: Any) -> None:
    call = calls.BrokerHeartbeat(cluster_name="c", broker_addr="h:1", broker_name="z")
    handlers.heartbeat(state, call, peer)
    assert not state.brokers.registrations


def test_every_conversation_of_the_name_server_is_served() -> None:
    asked = {v for v in vars(calls).values() if isinstance(v, type) and issubclass(v, Call)}
    assert asked - {Call} == set(HANDLERS)
