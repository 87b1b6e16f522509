"""BrokerUsers: the users and policies of the brokers behind the proxy, asked for again and again.

All brokers of a cluster have the same ones; the first that answers is believed.
"""

import asyncio
from typing import Final

from roquet.access.translation import AccessDocument, tables_of
from roquet.client.connection.background import ErrorLogThrottle
from roquet.model.access import AccessTables
from roquet.model.errors import RoquetError
from roquet.proxy.cluster import ProxiedCluster
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.wire.calls.access import AclInfo, ListAcls, ListUsers, UserInfo
from roquet.wire.fastjson import codec

ASK_MS: Final = 5_000
"""Ms between two questions: a change at the brokers counts here after this time at most."""

UNKNOWN: Final = "users are not known yet: no broker has told the proxy who they are, see its log"


class BrokerUsers:
    """Users and policies of a cluster, for a proxy whose own user is a super user."""

    def __init__(self, cluster: ProxiedCluster) -> None:
        self._cluster = cluster
        self._document = AccessDocument()
        self._tables: AccessTables | None = None
        self._throttle = ErrorLogThrottle("users and policies of the brokers")

    def tables(self) -> AccessTables:
        """Those of the latest answer; raises ProxyRefusal before the first one."""
        if self._tables is None:
            raise ProxyRefusal(StatusCode.INTERNAL_SERVER_ERROR, UNKNOWN)
        return self._tables

    async def serve(self) -> None:
        """Ask for ever; while no broker answers the latest answer counts."""
        clock = self._cluster.session.config.clock
        while True:
            try:
                await self.step()
                self._throttle.clear()
            except RoquetError as error:
                self._throttle.report(error)
            await clock.sleep(ASK_MS)

    async def step(self) -> None:
        """Ask the brokers in turn, until one answers. Raises RoquetError if none does."""
        brokers = await self._cluster.all_brokers()
        failure = RoquetError("the name servers know no address of a broker")
        for address in [one for broker in brokers for one in broker.broker_addrs.values()]:
            try:
                self._take(await self._document_of(address))
            except RoquetError as error:
                failure = error
            else:
                return
        raise failure

    async def _document_of(self, address: str) -> AccessDocument:
        session = self._cluster.session
        pool, limit_ms = session.pool, session.config.timeout_ms
        users, acls = await asyncio.gather(
            pool.call(address, ListUsers(), limit_ms), pool.call(address, ListAcls(), limit_ms)
        )
        return AccessDocument(
            users=codec.loads(users.body, list[UserInfo]) if users.body else [],
            acls=codec.loads(acls.body, list[AclInfo]) if acls.body else [],
        )

    def _take(self, document: AccessDocument) -> None:
        """Take over an answer. Raises FieldError if it shows no passwords, as to normal users."""
        if self._tables is None or document != self._document:
            self._tables = tables_of(document)
            self._document = document
