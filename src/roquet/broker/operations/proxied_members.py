"""ProxiedMembers: members of groups whose clients are connected to gRPC proxies.

    operator ── 203, 307, 309 ──▶ broker ── the same request ──▶ each proxy that is connected

Proxies are asked when an operator asks: nothing of their clients is kept here, so that a client or
a proxy that has gone is not listed any more. Such members pop, and no queue is theirs: they are not
among those to whom remoting members leave queues (GET_CONSUMER_LIST_BY_GROUP, QUERY_ASSIGNMENT).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from roquet.broker.access.access_control import AccessControl
from roquet.broker.broker import BrokerComponent
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.log_records import logger
from roquet.model.errors import CallRefused, RoquetError
from roquet.model.names import PROXY_GROUP
from roquet.net.address import host_of
from roquet.net.router import Peer
from roquet.wire.calls.admin.group import GetConnections
from roquet.wire.calls.bodies import ConsumerConnection
from roquet.wire.codes import ResponseCode
from roquet.wire.request_body import decode_body

log = logger(__name__)

ANSWER_MS: Final = 1_000
"""Time of a proxy's answer: half of what operators' tools wait for the broker's."""

PROXIES_MAX: Final = 64
"""Proxies that are asked: without access control any client may say that it is one."""

ANSWER_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes of a proxy's answer: twenty thousand members fit."""


class ProxiedMembers(BrokerComponent, frozen=True):
    """Asks proxies about members of groups."""

    tables: BrokerTables
    access: AccessControl

    def proxies(self, group: str) -> Sequence[Peer]:
        """The proxies that may know members of a group: their users may consume in it."""
        clients = self.tables.clients
        found = [
            peer
            for peer in clients.producers(PROXY_GROUP)
            if not peer.closed
            and self.access.may_consume(clients.user(peer), group, host_of(peer.address))
        ]
        return found[-PROXIES_MAX:]

    async def ask(self, call: GetConnections) -> Mapping[Peer, ConsumerConnection]:
        """The members at each proxy that has some, and answers."""
        proxies = self.proxies(call.consumer_group)
        answers = await asyncio.gather(*(_members(proxy, call) for proxy in proxies))
        return {
            proxy: answer
            for proxy, answer in zip(proxies, answers, strict=True)
            if answer is not None
        }

    async def proxy_of(self, group: str, client_id: str) -> Peer | None:
        """The proxy that a member is connected to; None for a client that is at none."""
        answers = await self.ask(GetConnections(consumer_group=group))
        for proxy, answer in answers.items():
            if any(member.client_id == client_id for member in answer.connection_set):
                return proxy
        return None


async def _members(proxy: Peer, call: GetConnections) -> ConsumerConnection | None:
    """A proxy's members of a group; None when it has none, or gives no answer."""
    try:
        reply = await proxy.call(call, ANSWER_MS)
        if len(reply.body) > ANSWER_SIZE_MAX:
            log.warning("%s answers with %d bytes about a group", proxy.address, len(reply.body))
            return None
        return decode_body(reply.body, ConsumerConnection)
    except RoquetError as error:
        if not isinstance(error, CallRefused) or error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            log.info("%s does not tell its members: %s", proxy.address, error)
        return None
