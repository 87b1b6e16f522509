"""Sync-state sets, changed by masters and read by brokers and operators; and who leads."""

from roquet.controller.controller import Controller
from roquet.controller.request_fields import check_texts
from roquet.controller.role_notices import sync_state_body
from roquet.model.errors import CallRefused
from roquet.net.router import Peer
from roquet.rules.election.group import Refusal, ReplicaGroup, SetChange, alter_set
from roquet.wire.call import Reply
from roquet.wire.calls import controller as calls
from roquet.wire.calls.controller import GetControllerMetadata, GetControllerMetadataReply
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.request_body import decode_body


async def alter(
    controller: Controller, call: calls.AlterSyncStateSet, _peer: Peer
) -> calls.AlterSyncStateSetReply:
    """Change the set of the sender's group."""
    check_texts(brokerName=call.broker_name)
    body = decode_body(call.body, calls.SyncStateSet)
    change = SetChange(
        master=call.master_broker_id,
        master_epoch=call.master_epoch,
        members=frozenset(body.sync_state_set),
        set_version=body.sync_state_set_epoch,
    )

    def decide(group: ReplicaGroup | None) -> ReplicaGroup | Refusal:
        return alter_set(group, change, {} if group is None else controller.liveness.live(group))

    group = await controller.leadership.leader_state().update(call.broker_name, decide)
    return calls.AlterSyncStateSetReply(
        new_sync_state_set_epoch=group.set_version, body=codec.dumps(sync_state_body(group))
    )


def replica_info(
    controller: Controller, call: calls.GetReplicaInfo, _peer: Peer
) -> calls.GetReplicaInfoReply:
    """Master and set of a group."""
    group = controller.leadership.leader_state().group(call.broker_name)
    if group is None or group.is_removed:
        remark = "Broker metadata is not existed"
        raise CallRefused(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, remark)
    return calls.GetReplicaInfoReply(
        master_broker_id=group.master,
        master_address=group.master_address,
        master_epoch=group.master_epoch,
        body=codec.dumps(sync_state_body(group)),
    )


def sync_state_data(controller: Controller, call: calls.GetSyncStateData, _peer: Peer) -> Reply:
    """Replicas of several groups for operators; unknown names are left out."""
    state = controller.leadership.leader_state()
    if not call.body:
        return Reply()
    table: dict[str, calls.ReplicasInfo] = {}
    for name in dict.fromkeys(decode_body(call.body, list[str])):  # a repeated one costs no more
        group = state.group(name)
        if group is not None and not group.is_removed:
            table[name] = _replicas(controller, group)
    return Reply(body=codec.dumps(calls.SyncStateData(replicas_info_table=table)))


def _replicas(controller: Controller, group: ReplicaGroup) -> calls.ReplicasInfo:
    live = controller.liveness.live(group)
    identities = {
        key: calls.ReplicaIdentity(
            broker_name=group.name, broker_id=key, broker_address=replica.address, alive=key in live
        )
        for key, replica in sorted(group.replicas.items())
    }
    return calls.ReplicasInfo(
        master_broker_id=group.master,
        master_address=group.master_address,
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.set_version,
        in_sync_replicas=[one for key, one in identities.items() if key in group.in_sync],
        not_in_sync_replicas=[one for key, one in identities.items() if key not in group.in_sync],
    )


def metadata(
    controller: Controller, _call: GetControllerMetadata, _peer: Peer
) -> GetControllerMetadataReply:
    """The controllers and the one that leads, if there is one."""
    view = controller.leadership.view
    return GetControllerMetadataReply(
        group=controller.config.controllers,
        controller_leader_id=view.leader.controller_id if view.leader else None,
        controller_leader_address=view.leader.address if view.leader else None,
        is_leader=controller.leadership.state is not None,
        peers="".join(f"{peer.controller_id}:{peer.address};" for peer in view.peers),
    )
