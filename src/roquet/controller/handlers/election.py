"""Elections that brokers and operators ask for."""

from roquet.controller.controller import Controller
from roquet.controller.request_fields import check_texts
from roquet.model.errors import CallRefused
from roquet.net.router import Peer
from roquet.rules.election.elect import ElectionRequest
from roquet.rules.election.group import RefusalCode, ReplicaGroup
from roquet.wire.calls.admin.namesrv import BrokerMembers
from roquet.wire.calls.controller import (
    ElectMaster,
    ElectMasterBody,
    ElectMasterReply,
    OperatorElectMasterBody,
)
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec


async def elect_master(controller: Controller, call: ElectMaster, peer: Peer) -> ElectMasterReply:
    """Elect a master; the reply names the new one, or with MASTER_STILL_EXIST the old one."""
    check_texts(brokerName=call.broker_name)
    state = controller.leadership.leader_state()
    if not call.designate_elect:
        _check_asker(controller, state.group(call.broker_name), call.broker_id, peer)
    unclean = controller.elections.elects_unclean if call.unclean is None else call.unclean
    request = ElectionRequest(
        asker=call.broker_id,
        designated=call.designate_elect,
        unclean=unclean,
        epoch=call.broker_epoch or 0,
    )
    elect = controller.elections.elect_designated if call.designate_elect else None
    result = await (elect or controller.elections.elect)(state, call.broker_name, request)
    if result.refusal is None:
        body = _winner_body(result.group, for_operator=call.designate_elect)
        return _reply(result.group, body)
    if result.refusal.code == RefusalCode.MASTER_STILL_EXIST:
        code = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        body = codec.dumps(ElectMasterBody(sync_state_set=sorted(result.group.in_sync)))
        return _reply(result.group, body, code, result.refusal.remark)
    raise CallRefused(result.refusal.code, result.refusal.remark)


def _check_asker(
    controller: Controller, group: ReplicaGroup | None, asker: int | None, peer: Peer
) -> None:
    """Raise CallRefused for a broker of which another connection says where its log ends."""
    if group is None or asker is None:
        return
    if controller.liveness.is_heard_from_another(group, asker, peer):
        remark = f"another connection sends heartbeats as broker {asker} of {group.name}"
        raise CallRefused(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, remark)


def _winner_body(group: ReplicaGroup, *, for_operator: bool) -> bytes:
    members = BrokerMembers(
        cluster=group.cluster,
        broker_name=group.name,
        broker_addrs={key: replica.address for key, replica in sorted(group.replicas.items())},
    )
    in_sync = sorted(group.in_sync)
    if not for_operator:
        return codec.dumps(ElectMasterBody(broker_member_group=members, sync_state_set=in_sync))
    body = OperatorElectMasterBody(
        broker_member_group=members,
        sync_state_set=in_sync,
        cluster=members.cluster,
        broker_name=members.broker_name,
        broker_addrs=members.broker_addrs,
    )
    return codec.dumps(body, standard=True)


def _reply(
    group: ReplicaGroup,
    body: bytes,
    code: ResponseCode = ResponseCode.SUCCESS,
    remark: str | None = None,
) -> ElectMasterReply:
    return ElectMasterReply(
        code=code,
        remark=remark,
        master_broker_id=group.master,
        master_address=group.master_address,
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.set_version,
        body=body,
    )
