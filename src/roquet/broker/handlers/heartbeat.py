"""Clients come and go."""

from roquet.broker.broker import Broker
from roquet.broker.handlers.pull import check_type, parsed
from roquet.model.errors import CallRefused
from roquet.model.names import retry_topic
from roquet.model.subscription import HeartbeatData
from roquet.net.router import Peer
from roquet.rules.liveness import Sign
from roquet.wire import dialect
from roquet.wire.call import Reply
from roquet.wire.calls import heartbeat as calls
from roquet.wire.calls.bodies import CheckClientBody, ConsumerIdList
from roquet.wire.codes import ResponseCode


def heartbeat(broker: Broker, call: calls.Heartbeat, peer: Peer) -> calls.HeartbeatReply:
    """Notes who a client is and what it listens to; tells its groups when that is news."""
    data = dialect.loads(call.body, HeartbeatData)
    if peer not in broker.clients:
        peer.on_close(broker.forget)
    limit_ms = broker.config.client_silence
    broker.clients.seen(peer, Sign(seen_ms=broker.clock.monotonic_ms(), limit_ms=limit_ms))
    if data.without_sub:
        known = broker.clients.same_as_before(peer, data.heartbeat_fingerprint)
        return calls.HeartbeatReply(supports_v2=True, subscription_changed=not known)
    _make_groups(broker, data)
    broker.notify(broker.clients.beat(peer, data))
    return calls.HeartbeatReply(supports_v2=True, subscription_changed=True)


def unregister(broker: Broker, call: calls.Unregister, peer: Peer) -> Reply:
    """Takes a client out of a group."""
    group = call.consumer_group
    member = broker.clients.member(group, peer) if group else None
    if broker.clients.leave(peer, producer=call.producer_group, consumer=group) and group:
        broker.left(group, member or call.client_id)
        broker.notify([group])
    return Reply()


def consumers(broker: Broker, call: calls.GetConsumers, _peer: Peer) -> Reply:
    """The client ids of a group's members."""
    group = broker.clients.consumers(call.consumer_group)
    if group is None:
        raise CallRefused(
            ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {call.consumer_group}"
        )
    return Reply(body=dialect.dumps(ConsumerIdList(consumer_id_list=group.client_ids)))


def check_subscription(_broker: Broker, call: calls.CheckSubscription, _peer: Peer) -> Reply:
    """Says whether the broker can filter by an expression."""
    if call.body:
        subscription = dialect.loads(call.body, CheckClientBody).subscription_data
        check_type(subscription.expression_type)
        parsed(subscription.sub_string)
    return Reply()


def _make_groups(broker: Broker, data: HeartbeatData) -> None:
    """Settings and a retry topic for each group that is new."""
    now_ms = broker.clock.now_ms()
    for consumer in data.consumer_data_set:
        group = broker.groups.find(consumer.group_name, now_ms)
        if group is not None:
            topic = retry_topic(group.group_name)
            broker.topics.create_for_group(topic, group.retry_queue_nums, now_ms)
