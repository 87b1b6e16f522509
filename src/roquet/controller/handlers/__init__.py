"""Handlers of the controller, by call type."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from roquet.controller.controller import Controller
from roquet.controller.handlers import (
    election,
    heartbeat,
    operators,
    registration,
    sync_state,
)
from roquet.net.router import HandlerReply, Peer
from roquet.wire.call import Call
from roquet.wire.calls import controller as calls
from roquet.wire.calls.route import BrokerHeartbeat

HANDLERS: Final[Mapping[type[Call[Any]], Callable[[Controller, Any, Peer], HandlerReply]]] = (
    MappingProxyType(
        {
            BrokerHeartbeat: heartbeat.heartbeat,
            calls.AlterSyncStateSet: sync_state.alter,
            calls.ApplyBrokerId: registration.apply_id,
            calls.CleanBrokerData: operators.clean,
            calls.ElectMaster: election.elect_master,
            calls.GetControllerMetadata: sync_state.metadata,
            calls.GetControllerSettings: operators.all_settings,
            calls.GetNextBrokerId: registration.next_id,
            calls.GetReplicaInfo: sync_state.replica_info,
            calls.GetSyncStateData: sync_state.sync_state_data,
            calls.RegisterWithController: registration.register,
            calls.UpdateControllerSettings: operators.update,
        }
    )
)
"""The handler of each call."""
