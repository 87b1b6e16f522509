"""Replication: the part of the broker for its role and for its replicas.

role ──▶ master:   stream server ──▶ log ──▶ replicas ──reports──▶ acknowledgements
└──▶ replica:  stream client ◀── log ◀── master
"""

from typing import Protocol

import msgspec

from roquet.broker.replication.acting_master import ActingMaster
from roquet.broker.replication.confirmation.status_wait import StatusWait
from roquet.broker.replication.controller_mode import ControllerMode
from roquet.broker.replication.role import RoleCell
from roquet.broker.replication.stream.stream_client import StreamClient
from roquet.broker.replication.stream.stream_server import StreamServer
from roquet.rules.replication.acknowledgement import PutStatus


class SenderWaits(Protocol):
    """When senders are answered: `Acknowledgements`, or `SetAcknowledgements` with a controller."""

    @property
    def is_needed(self) -> bool:
        """Whether any sender waits."""

    @property
    def is_short(self) -> bool:
        """Whether `check` has to be asked before a message is stored."""

    @property
    def may_lose_stored(self) -> bool:
        """Whether a master's log may be cut to what is confirmed: another one may be elected."""

    @property
    def in_sync(self) -> int:
        """Number of logs in sync, the master's among them."""

    @property
    def replicated(self) -> int:
        """Position up to which as many logs as needed hold everything."""

    @property
    def waiting(self) -> int:
        """Senders that wait for replicas."""

    def check(self, *, waits: bool = True) -> None:
        """Raise CallRefused when too few logs are in sync to store a message."""

    def wait(self, position: int) -> StatusWait | None:
        """A wait for `status` that is one for replicas alone; None: `status` has to be awaited."""

    async def status(self, position: int) -> PutStatus:
        """Wait until the log in front of a position is as safe as the settings ask for."""


class Replication(msgspec.Struct, frozen=True, kw_only=True):
    """The role of this broker in its group, and the streams of its log."""

    role: RoleCell
    acknowledgements: SenderWaits
    stream_server: StreamServer
    """Serves replicas while this broker leads."""
    stream_client: StreamClient
    """Follows the master while it does not."""
    controller_mode: ControllerMode | None = None
    """None: roles are fixed."""
    acting_master: ActingMaster | None = None
    """Whether this broker stands in for its master; None: no broker of the group does."""

    @property
    def acts_as_master(self) -> bool:
        """Whether this replica stands in for its master now."""
        return self.acting_master is not None and self.acting_master.is_acting
