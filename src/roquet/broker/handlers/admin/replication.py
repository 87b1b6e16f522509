"""Replication: what controllers and other brokers of the group ask and tell."""

from roquet.broker.log.message_log import MessageLog
from roquet.broker.replication.replication import Replication
from roquet.model.errors import CallRefused
from roquet.model.settings import join_address, parse_address
from roquet.net.router import Peer
from roquet.wire.calls.replication import ExchangeHaInfo, ExchangeHaInfoReply, NotifyRoleChanged
from roquet.wire.codes import ResponseCode


class ReplicationHandler:
    """Follows changes of the role, and exchanges addresses of replication."""

    __slots__ = ("_log", "_replication")

    def __init__(self, log: MessageLog, replication: Replication) -> None:
        self._log, self._replication = log, replication

    def role_changed(self, _call: NotifyRoleChanged, _peer: Peer) -> None:
        """Ask the controller at once who leads: what the notice says could be anybody's."""
        if self._replication.controller_mode is not None:
            self._replication.controller_mode.notice()

    def exchange_ha_info(self, call: ExchangeHaInfo, _peer: Peer) -> ExchangeHaInfoReply:
        """Return where a master streams its log; a replica returns nothing.

        Refuses an address to follow, which brokers with acting masters send.
        """
        if call.master_ha_address:
            raise CallRefused(
                ResponseCode.SYSTEM_ERROR, "this broker takes no address to follow: it asks for it"
            )
        if not self._replication.role.current.is_master:
            return ExchangeHaInfoReply()
        address = self._log.address
        host, _ = parse_address(address)
        return ExchangeHaInfoReply(
            master_ha_address=join_address(host, self._replication.stream_server.port),
            master_flush_offset=self._log.store.flushed_position,
            master_address=address,
        )
