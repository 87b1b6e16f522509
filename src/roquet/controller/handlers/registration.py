"""Registration: brokers get an id for good and say where they are."""

from roquet.controller.controller import GROUPS_MAX, Controller
from roquet.controller.request_fields import check_broker_id, check_cluster, check_texts
from roquet.controller.role_notices import sync_state_body
from roquet.model.errors import CallRefused
from roquet.net.router import Peer
from roquet.rules.election.group import (
    FIRST_ID,
    BrokerSite,
    Refusal,
    ReplicaGroup,
    apply_broker_id,
    foreign_cluster,
    outdated,
    register_address,
)
from roquet.wire.calls import controller as calls
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec


def next_id(
    controller: Controller, call: calls.GetNextBrokerId, _peer: Peer
) -> calls.GetNextBrokerIdReply:
    """The id for which a new broker may apply; nothing is changed."""
    check_texts(clusterName=call.cluster_name, brokerName=call.broker_name)
    group = controller.leadership.leader_state().group(call.broker_name)
    refusal = foreign_cluster(group, call.cluster_name)
    if refusal is None and controller.elections.is_outdated(call.broker_name):
        refusal = outdated(call.broker_name)  # an id that was given before would be given again
    if refusal is not None:
        raise CallRefused(refusal.code, refusal.remark)
    return calls.GetNextBrokerIdReply(
        cluster_name=call.cluster_name,
        broker_name=call.broker_name,
        next_broker_id=group.next_id if group else FIRST_ID,
    )


async def apply_id(
    controller: Controller, call: calls.ApplyBrokerId, _peer: Peer
) -> calls.ApplyBrokerIdReply:
    """Give an id to a broker, or again to the one that has it.

    Also while the state is older than its brokers: those that have ids have to be heard of.
    """
    cluster, name, code = call.cluster_name, call.broker_name, call.register_check_code
    check_texts(clusterName=cluster, brokerName=name, registerCheckCode=code)
    state = controller.leadership.leader_state()
    if state.group(name) is None and len(state.names) >= GROUPS_MAX:
        remark = f"there are {GROUPS_MAX} groups, more are not kept"
        raise CallRefused(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)

    def decide(group: ReplicaGroup | None) -> ReplicaGroup | Refusal:
        live = {} if group is None else controller.liveness.live(group)
        return apply_broker_id(group, cluster, name, call.applied_broker_id, code, live)

    await state.update(name, decide)
    return calls.ApplyBrokerIdReply(cluster_name=cluster, broker_name=name)


async def register(
    controller: Controller, call: calls.RegisterWithController, _peer: Peer
) -> calls.RegisterWithControllerReply:
    """Record where a broker is; the reply names its master if that is alive."""
    check_broker_id(call.broker_id)
    check_texts(brokerName=call.broker_name, brokerAddress=call.broker_address)
    check_cluster(call.cluster_name)
    site = BrokerSite(cluster=call.cluster_name, address=call.broker_address)

    def decide(group: ReplicaGroup | None) -> ReplicaGroup | Refusal:
        live = {} if group is None else controller.liveness.live(group)
        after = register_address(group, call.broker_id, site, live)
        is_moved = isinstance(after, ReplicaGroup) and group and after.master != group.master
        return outdated(name) if is_moved and controller.elections.is_outdated(name) else after

    name = call.broker_name
    group = await controller.leadership.leader_state().update(name, decide)
    has_master = group.master in controller.liveness.live(group)
    return calls.RegisterWithControllerReply(
        cluster_name=call.cluster_name,
        broker_name=call.broker_name,
        master_broker_id=group.master if has_master else None,
        master_address=group.master_address if has_master else None,
        master_epoch=group.master_epoch if has_master else None,
        sync_state_set_epoch=group.set_version if has_master else None,
        body=codec.dumps(sync_state_body(group)),
    )
