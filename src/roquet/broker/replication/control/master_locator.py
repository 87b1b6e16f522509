"""MasterLocator: where an elected master streams its log.

The controller names the master's address for clients; request 906 to that address answers with the
one for replicas. Apache's replicas wait for the name server's answer to their next registration,
which may be the old master's for half a minute.
"""

from typing import Final

from msgspec.structs import replace

from roquet.broker.replication.role import RoleCell
from roquet.broker.replication.stream.stream_client import StreamClient
from roquet.log_records import logger
from roquet.model.errors import RoquetError
from roquet.model.settings import join_address, parse_address
from roquet.net.clock import Clock
from roquet.net.pool import ChannelPool
from roquet.wire.calls.replication import ExchangeHaInfo

log = logger(__name__)

INTERVAL_MS: Final = 200
"""Ms between two looks whether there is a master to be asked."""

TIMEOUT_MS: Final = 1_000
"""Timeout of the question in ms."""


class MasterLocator:
    """Asks the master of a replica where its stream is, while there is no stream."""

    def __init__(
        self, role: RoleCell, stream: StreamClient, pool: ChannelPool, clock: Clock
    ) -> None:
        self._role = role
        self._stream = stream
        self._pool = pool
        self._clock = clock

    async def serve(self) -> None:
        """Ask, forever."""
        while True:
            await self.step()
            await self._clock.sleep(INTERVAL_MS)

    async def step(self) -> None:
        """Ask once, if there is a master and no stream."""
        role = self._role.current
        if role.is_master or role.master is None or self._stream.facts.is_connected:
            return
        try:
            reply = await self._pool.call(role.master, ExchangeHaInfo(), TIMEOUT_MS)
            stream = _checked(reply.master_ha_address)
        except RoquetError as error:
            log.debug("the master at %s does not say where its stream is: %s", role.master, error)
            return
        if stream is not None and self._role.current is role:
            self._role.change(replace(role, master_stream=stream))


def _checked(address: str | None) -> str | None:
    return join_address(*parse_address(address, "masterHaAddress")) if address else None
