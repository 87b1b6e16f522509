"""Notices to brokers that another member of their name has the lowest id, if a setting says so."""

import asyncio
from typing import Final

from roquet.log_records import logger
from roquet.model.errors import RoquetError
from roquet.namesrv.state import NameServerState
from roquet.net.pool import ChannelPool
from roquet.rules.route_changes import LowestIdChange
from roquet.wire.calls.replication import NotifyMinBrokerId

log = logger(__name__)

NOTICE_TIMEOUT_MS: Final = 300
"""Time to connect to a broker, as in Apache's name server: brokers also ask each second."""


class LowestIdNotices:
    """Sends notices over connections of its own: brokers serve them at their own address."""

    def __init__(self, state: NameServerState, pool: ChannelPool) -> None:
        self._state = state
        self._pool = pool
        self._sending: set[asyncio.Task[None]] = set()

    def send(self, change: LowestIdChange) -> None:
        """Begin to notify brokers of a change."""
        if not self._state.config.notify_lowest_id:
            return
        log.info(
            "broker %s: id %d at %s is the lowest now; notified: %s",
            change.broker_name, change.broker_id, change.address, ", ".join(change.told),
        )  # fmt: skip
        for address in change.told:
            task = asyncio.get_running_loop().create_task(self._notify(address, change))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def close(self) -> None:
        """Cancel notices that are not sent yet, and close all connections."""
        tasks = list(self._sending)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.close()

    async def _notify(self, address: str, change: LowestIdChange) -> None:
        call = NotifyMinBrokerId(
            min_broker_id=change.broker_id,
            min_broker_addr=change.address,
            offline_broker_addr=change.lost_address,
            ha_broker_addr=change.ha_address,
        )
        try:
            async with asyncio.timeout(NOTICE_TIMEOUT_MS / 1000):
                await self._pool.oneway(address, call)
        except (RoquetError, TimeoutError) as error:
            log.info("%s is not notified: %s", address, error)
