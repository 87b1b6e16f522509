"""Replication: what controllers and other brokers of the group ask and tell."""

from roquet.broker.broker import BrokerComponent
from roquet.broker.log.message_log import MessageLog
from roquet.broker.refusals import system_error
from roquet.broker.replication.replication import Replication
from roquet.model.settings import join_address, parse_address
from roquet.net.router import Peer
from roquet.wire.calls.replication import ExchangeHaInfo, ExchangeHaInfoReply, NotifyRoleChanged


class ReplicationHandler(BrokerComponent, frozen=True):
    """Follows changes of the role, and exchanges addresses of replication."""

    log: MessageLog
    replication: Replication

    def role_changed(self, _call: NotifyRoleChanged, _peer: Peer) -> None:
        """Ask the controller at once who leads: what the notice says could be anybody's."""
        if self.replication.controller_mode is not None:
            self.replication.controller_mode.notice()

    def exchange_ha_info(self, call: ExchangeHaInfo, _peer: Peer) -> ExchangeHaInfoReply:
        """Return where a master streams its log; a replica returns nothing.

        Refuses an address to follow, which brokers with acting masters send.
        """
        if call.master_ha_address:
            raise system_error("this broker takes no address to follow: it asks for it")
        if not self.replication.role.current.is_master:
            return ExchangeHaInfoReply()
        address = self.log.address
        host, _ = parse_address(address)
        return ExchangeHaInfoReply(
            master_ha_address=join_address(host, self.replication.stream_server.port),
            master_flush_offset=self.log.store.flushed_position,
            master_address=address,
        )
