"""Routes and lists of topics, and write permissions of brokers."""

from collections.abc import Callable, Hashable

from roquet.log_records import logger
from roquet.model.errors import CallRefused, FieldError
from roquet.model.route import TopicRoute
from roquet.namesrv.kv_store import ORDER_NAMESPACE
from roquet.namesrv.state import NameServerState
from roquet.net.router import HandlerReply, Peer
from roquet.rules import route_changes, routing
from roquet.rules.routing import BrokerRegistrations
from roquet.wire.call import Reply
from roquet.wire.calls import route as calls
from roquet.wire.calls.admin import namesrv as admin
from roquet.wire.calls.bodies import TopicList
from roquet.wire.codes import HELP, VERSION_STANDARD_JSON, ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.request_body import decode_body

log = logger(__name__)


def route(state: NameServerState, call: calls.GetRoute, peer: Peer) -> Reply:
    """The route of a topic, in the JSON dialect that the client can read."""
    order = state.kv_store.get(ORDER_NAMESPACE, call.topic) if state.config.order_messages else None
    topic_route = routing.route_among(
        state.brokers.members,
        call.topic,
        order,
        shows_acting_master=state.config.show_acting_master,
    )
    if topic_route is None:
        raise CallRefused(
            ResponseCode.TOPIC_NOT_EXIST,
            f"No topic route info in name server for the topic: {call.topic}{HELP}",
        )
    standard = bool(call.accept_standard_json_only) or peer.version >= VERSION_STANDARD_JSON
    return Reply(body=codec.dumps(topic_route, standard=standard))


def cluster(state: NameServerState, _call: calls.GetClusterInfo, _peer: Peer) -> HandlerReply:
    """All brokers and clusters."""
    return state.answers.reply(lambda: state.brokers.registrations, "brokers", routing.cluster)


def all_topics(state: NameServerState, _call: calls.GetAllTopics, _peer: Peer) -> HandlerReply:
    """The names of all topics."""
    if not state.config.all_topics:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, "disable")
    return _names(state, "all", routing.topics)


def topics_of_cluster(
    state: NameServerState, call: admin.TopicsOfCluster, _peer: Peer
) -> HandlerReply:
    """The names of a cluster's topics."""
    cluster = call.cluster
    return _names(state, ("cluster", cluster), lambda known: routing.topics(known, cluster))


def system_topics(state: NameServerState, _call: admin.SystemTopics, _peer: Peer) -> Reply:
    """The topics named after clusters and brokers, and the address of one broker."""
    known = state.brokers.registrations
    names = sorted({name for r in known.values() for name in (r.cluster, r.broker_name)})
    address = next((known[broker_key].address for broker_key in sorted(known)), None)
    return Reply(body=codec.dumps(TopicList(topic_list=names, broker_addr=address)))


def unit_topics(state: NameServerState, _call: admin.UnitTopics, _peer: Peer) -> HandlerReply:
    """The topics of one unit."""
    return _names(state, "unit", lambda known: routing.topics_with(known, routing.UNIT))


def unit_subscribed(
    state: NameServerState, _call: admin.UnitSubscribedTopics, _peer: Peer
) -> HandlerReply:
    """The topics that groups of a unit subscribe to."""
    flag = routing.UNIT_SUBSCRIBED
    return _names(state, "subscribed", lambda known: routing.topics_with(known, flag))


def others_subscribed(
    state: NameServerState, _call: admin.OthersSubscribedTopics, _peer: Peer
) -> HandlerReply:
    """The topics that groups of a unit subscribe to and that belong to no unit."""

    def names(known: BrokerRegistrations) -> list[str]:
        return routing.topics_with(known, routing.UNIT_SUBSCRIBED, without=routing.UNIT)

    return _names(state, "others", names)


def wipe(
    state: NameServerState, call: admin.WipeWritePermission, peer: Peer
) -> admin.WipeWritePermissionReply:
    """Remove the write permission of a broker from its topics."""
    count = _permit(state, call.broker_name, peer, may_write=False)
    return admin.WipeWritePermissionReply(wipe_topic_count=count)


def permit(
    state: NameServerState, call: admin.AddWritePermission, peer: Peer
) -> admin.AddWritePermissionReply:
    """Restore the write permission of a broker."""
    count = _permit(state, call.broker_name, peer, may_write=True)
    return admin.AddWritePermissionReply(add_topic_count=count)


def _permit(state: NameServerState, broker_name: str, peer: Peer, *, may_write: bool) -> int:
    who = "everybody" if may_write else "nobody"
    log.info("%s has it that %s may write to %s", peer.address, who, broker_name)
    known = state.brokers.registrations
    state.brokers.registrations = route_changes.with_write_permission(
        known, broker_name, may_write=may_write
    )
    return route_changes.topic_count(known, broker_name)


def forget(state: NameServerState, call: admin.ForgetTopic, peer: Peer) -> Reply:
    """Remove the route of a topic until a broker registers it again."""
    log.info("%s forgets topic %s", peer.address, call.topic)
    known = state.brokers.registrations
    state.brokers.registrations = route_changes.without_topic(known, call.topic, call.cluster_name)
    return Reply()


def register(state: NameServerState, call: admin.RegisterTopic, peer: Peer) -> Reply:
    """Set the brokers of a topic; none of them when one is unknown."""
    try:
        queues = decode_body(call.body, TopicRoute).queue_datas if call.body else []
    except FieldError as error:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, f"TopicRouteData: {error}") from error
    log.info("%s registers topic %s on %d brokers", peer.address, call.topic, len(queues))
    known = state.brokers.registrations
    state.brokers.registrations = route_changes.with_topic(known, call.topic, queues)
    return Reply()


def _names(
    state: NameServerState, kind: Hashable, names: Callable[[BrokerRegistrations], list[str]]
) -> HandlerReply:
    return state.answers.reply(
        lambda: state.brokers.registrations, kind, lambda known: TopicList(topic_list=names(known))
    )
