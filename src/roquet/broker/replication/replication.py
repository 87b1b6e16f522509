"""Replication: the part of the broker for its role and for its replicas.

role ──▶ master:   stream server ──▶ log ──▶ replicas ──reports──▶ acknowledgements
└──▶ replica:  stream client ◀── log ◀── master
"""

from typing import TYPE_CHECKING

import msgspec

from roquet.broker.replication.confirmation.acknowledgements import Acknowledgements
from roquet.broker.replication.confirmation.set_acknowledgements import SetAcknowledgements
from roquet.broker.replication.fixed_roles import FixedRoles
from roquet.broker.replication.role import RoleCell
from roquet.broker.replication.stream.stream_client import StreamClient
from roquet.broker.replication.stream.stream_server import StreamServer

if TYPE_CHECKING:
    from roquet.broker.replication.controller_mode import ControllerMode


class Replication(msgspec.Struct, frozen=True, kw_only=True):
    """The role of this broker in its group, and the streams of its log."""

    mode: "FixedRoles | ControllerMode"
    """By what this broker gets its role: its settings, or a controller."""
    role: RoleCell
    acknowledgements: Acknowledgements | SetAcknowledgements
    """When senders are answered."""
    stream_server: StreamServer
    """Serves replicas while this broker leads."""
    stream_client: StreamClient
    """Follows the master while it does not."""

    @property
    def controller_mode(self) -> "ControllerMode | None":
        """None: roles are fixed."""
        return None if isinstance(self.mode, FixedRoles) else self.mode

    @property
    def acts_as_master(self) -> bool:
        """Whether this replica stands in for its master now."""
        return self.mode.acting_master.is_acting
