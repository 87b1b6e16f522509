"""Replication: what controllers and other brokers of the group ask and tell."""

from roquet.broker.log.message_log import MessageLog
from roquet.broker.replication.replication import Replication
from roquet.model.errors import CallRefused
from roquet.model.settings import join_address, parse_address
from roquet.net.router import Peer
from roquet.wire.calls.replication import ExchangeHaInfo, ExchangeHaInfoReply, NotifyRoleChanged
from roquet.wire.codes import ResponseCode


def role_changed(replication: Replication, _call: NotifyRoleChanged, _peer: Peer) -> None:
    """Ask the controller at once who leads: what the notice says could be anybody's."""
    if replication.controller_mode is not None:
        replication.controller_mode.notice()


def exchange_ha_info(
    message_log: MessageLog, replication: Replication, call: ExchangeHaInfo, _peer: Peer
) -> ExchangeHaInfoReply:
    """Return where a master streams its log; a replica returns nothing.

    Refuses an address to follow, which brokers with acting masters send.
    """
    if call.master_ha_address:
        raise CallRefused(
            ResponseCode.SYSTEM_ERROR, "this broker takes no address to follow: it asks for it"
        )
    if not replication.role.current.is_master:
        return ExchangeHaInfoReply()
    address = message_log.address
    host, _ = parse_address(address)
    return ExchangeHaInfoReply(
        master_ha_address=join_address(host, replication.stream_server.port),
        master_flush_offset=message_log.store.flushed_position,
        master_address=address,
    )
