"""Replication: the part of the broker for its role and for its replicas."""

import msgspec

from roquet.broker.replication.role import RoleCell


class Replication(msgspec.Struct, frozen=True, kw_only=True):
    """The role of this broker in its group."""

    role: RoleCell
