"""Metadata: which controller leads; every controller answers."""

from roquet.controller.controller import Controller
from roquet.net.router import Peer
from roquet.wire.calls.controller import GetControllerMetadata, GetControllerMetadataReply


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
