"""Call to reply: what a name server answers."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from roquet.model.errors import CallRefused, FieldError
from roquet.model.topic import MASTER_ID, DataVersion
from roquet.namesrv.brokers import Brokers
from roquet.namesrv.config import NameServerConfig
from roquet.namesrv.values import ORDER_NAMESPACE, Values
from roquet.net.clock import Clock
from roquet.net.router import Peer
from roquet.rules import routing
from roquet.rules.liveness import SILENCE_MS_MAX, Sign
from roquet.rules.routing import Registration, Verdict
from roquet.wire import dialect, registration
from roquet.wire.call import Call, Reply
from roquet.wire.calls import route as calls
from roquet.wire.calls.bodies import KVTable, RegisterBrokerBody, TopicList
from roquet.wire.codes import VERSION_STANDARD_JSON, ResponseCode


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All that a handler may ask or change."""

    config: NameServerConfig
    clock: Clock
    brokers: Brokers
    values: Values


def register(state: State, call: calls.RegisterBroker, peer: Peer) -> calls.RegisterBrokerReply:
    """Takes what a broker says of itself; tells a follower who leads."""
    new = _registration(call, _body(call))
    sign = Sign(
        seen_ms=state.clock.monotonic_ms(),
        limit_ms=call.heartbeat_timeout_millis or SILENCE_MS_MAX,
    )
    whole = state.config.whole_registrations
    if state.brokers.take(new, peer, sign, whole=whole) is Verdict.INCOMPLETE:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, "register broker failed")
    leader = state.brokers.registrations.get((new.broker_name, MASTER_ID))
    follows = leader is not None and new.broker_id != MASTER_ID
    return calls.RegisterBrokerReply(
        master_addr=leader.address if leader and follows else None,
        ha_server_addr=leader.ha_address if leader and follows else None,
        body=dialect.dumps(KVTable(table=dict(state.values.all(ORDER_NAMESPACE)))),
    )


def unregister(state: State, call: calls.UnregisterBroker, _peer: Peer) -> Reply:
    """Forgets a broker that leaves."""
    if seat := state.brokers.seated(call.broker_name, call.broker_addr):
        state.brokers.forget([seat], "leaves")
    return Reply()


def heartbeat(state: State, call: calls.BrokerHeartbeat, _peer: Peer) -> Reply:
    """Notes that a broker lives."""
    if seat := state.brokers.seated(call.broker_name, call.broker_addr):
        now_ms = state.clock.monotonic_ms()
        state.brokers.spoke(seat, now_ms, call.heartbeat_timeout_mills)
    return Reply()


def data_version(state: State, call: calls.QueryDataVersion, _peer: Peer) -> calls.DataVersionReply:
    """Whether a broker has to register again; if not, that it lives."""
    seat = state.brokers.seated(call.broker_name, call.broker_addr)
    if seat is None:
        return calls.DataVersionReply(changed=True)
    held = state.brokers.registrations[seat].version
    changed = dialect.loads(call.body, DataVersion) != held
    if not changed:
        state.brokers.spoke(seat, state.clock.monotonic_ms())
    return calls.DataVersionReply(changed=changed, body=dialect.dumps(held))


def route(state: State, call: calls.GetRoute, peer: Peer) -> Reply:
    """Where a topic lives, in the JSON that the client can read."""
    order = state.values.get(ORDER_NAMESPACE, call.topic) if state.config.order_messages else None
    found = routing.route(state.brokers.registrations, call.topic, order)
    if found is None:
        raise CallRefused(
            ResponseCode.TOPIC_NOT_EXIST,
            f"No topic route info in name server for the topic: {call.topic}",
        )
    standard = bool(call.accept_standard_json_only) or peer.version >= VERSION_STANDARD_JSON
    return Reply(body=dialect.dumps(found, standard=standard))


def cluster(state: State, _call: calls.GetClusterInfo, _peer: Peer) -> Reply:
    """All brokers and clusters."""
    return Reply(body=dialect.dumps(routing.cluster(state.brokers.registrations)))


def all_topics(state: State, _call: calls.GetAllTopics, _peer: Peer) -> Reply:
    """The names of all topics."""
    if not state.config.all_topics:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, "disable")
    names = routing.topics(state.brokers.registrations)
    return Reply(body=dialect.dumps(TopicList(topic_list=names)))


def put_value(state: State, call: calls.PutKV, _peer: Peer) -> Reply:
    """Keeps a value."""
    state.values.put(call.namespace, call.key, call.value)
    return Reply()


def get_value(state: State, call: calls.GetKV, _peer: Peer) -> calls.ValueReply:
    """Gives a kept value back."""
    value = state.values.get(call.namespace, call.key)
    if value is None:
        raise CallRefused(
            ResponseCode.QUERY_NOT_FOUND,
            f"No config item, Namespace: {call.namespace} Key: {call.key}",
        )
    return calls.ValueReply(value=value)


def delete_value(state: State, call: calls.DeleteKV, _peer: Peer) -> Reply:
    """Forgets a kept value."""
    state.values.delete(call.namespace, call.key)
    return Reply()


def list_values(state: State, call: calls.ListKV, _peer: Peer) -> Reply:
    """All values of a namespace."""
    values = state.values.all(call.namespace)
    if not values:
        raise CallRefused(
            ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {call.namespace}"
        )
    return Reply(body=dialect.dumps(KVTable(table=dict(values))))


HANDLERS: Final[Mapping[type[Call[Any]], Callable[[State, Any, Peer], Reply]]] = MappingProxyType(
    {
        calls.RegisterBroker: register,
        calls.UnregisterBroker: unregister,
        calls.BrokerHeartbeat: heartbeat,
        calls.QueryDataVersion: data_version,
        calls.GetRoute: route,
        calls.GetClusterInfo: cluster,
        calls.GetAllTopics: all_topics,
        calls.PutKV: put_value,
        calls.GetKV: get_value,
        calls.DeleteKV: delete_value,
        calls.ListKV: list_values,
    }
)


def _body(call: calls.RegisterBroker) -> RegisterBrokerBody:
    if call.body_crc32 and registration.checksum(call.body) != call.body_crc32:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    try:
        return registration.decode(call.body, compressed=call.compressed)
    except FieldError as error:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, f"decode RegisterBroker: {error}") from error


def _registration(call: calls.RegisterBroker, body: RegisterBrokerBody) -> Registration:
    wrapper = body.topic_config_serialize_wrapper
    return Registration(
        cluster=call.cluster_name,
        broker_name=call.broker_name,
        broker_id=call.broker_id,
        address=call.broker_addr,
        ha_address=call.ha_server_addr,
        enable_acting_master=bool(call.enable_acting_master),
        version=wrapper.data_version,
        topics=wrapper.topic_config_table,
        filter_servers=tuple(body.filter_server_list),
    )
