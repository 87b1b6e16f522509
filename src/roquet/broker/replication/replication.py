"""Replication: the part of the broker for its role and for its replicas.

role ──▶ master:   stream server ──▶ log ──▶ replicas ──reports──▶ acknowledgements
└──▶ replica:  stream client ◀── log ◀── master
"""

import msgspec

from roquet.broker.replication.acknowledgements import Acknowledgements
from roquet.broker.replication.role import RoleCell
from roquet.broker.replication.stream_client import StreamClient
from roquet.broker.replication.stream_server import StreamServer


class Replication(msgspec.Struct, frozen=True, kw_only=True):
    """The role of this broker in its group, and the streams of its log."""

    role: RoleCell
    acknowledgements: Acknowledgements
    stream_server: StreamServer
    """Serves replicas while this broker leads."""
    stream_client: StreamClient
    """Follows the master while it does not."""
