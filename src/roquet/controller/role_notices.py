"""Role notices: live brokers of a group are told of an election at once (request 1008).

A notice is one way and may be lost: brokers also ask every five seconds who leads.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from roquet.log_records import logger
from roquet.model.errors import RoquetError
from roquet.net.channel import PLAIN, Security
from roquet.net.clock import Clock
from roquet.net.pool import ChannelPool
from roquet.rules.election.group import ReplicaGroup
from roquet.wire.calls.controller import SyncStateSet
from roquet.wire.calls.replication import NotifyRoleChanged
from roquet.wire.fastjson import codec

log = logger(__name__)

TRIES: Final = 3
"""Attempts to connect to a broker that is to be told."""

PAUSE_MS: Final = 1_000
"""Ms between two attempts; after all of them the broker has asked by itself."""


class RoleNotices:
    """Sends notices over connections of its own, as Apache's controller does."""

    def __init__(self, clock: Clock, security: Security = PLAIN) -> None:
        self._clock = clock
        self._pool = ChannelPool(clock=clock, security=security)
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, group: ReplicaGroup, addresses: Iterable[str]) -> None:
        """Begin to tell the brokers at these addresses of the group's master."""
        for address in addresses:
            task = asyncio.get_running_loop().create_task(self._tell(address, group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop sending and close the connections."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.close()

    async def _tell(self, address: str, group: ReplicaGroup) -> None:
        notice = role_notice(group)
        for attempt in range(1, TRIES + 1):
            try:
                await self._pool.oneway(address, notice)
            except RoquetError as error:
                if attempt == TRIES:
                    log.warning("%s was not told of its group's master: %s", address, error)
                else:
                    await self._clock.sleep(PAUSE_MS)
            else:
                return


def role_notice(group: ReplicaGroup) -> NotifyRoleChanged:
    """The notice of a group's master and its set."""
    return NotifyRoleChanged(
        master_address=group.master_address,
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.set_version,
        master_broker_id=group.master,
        body=codec.dumps(sync_state_body(group)),
    )


def sync_state_body(group: ReplicaGroup) -> SyncStateSet:
    """The sync-state set of a group as brokers read it."""
    return SyncStateSet(
        sync_state_set=sorted(group.in_sync), sync_state_set_epoch=group.set_version
    )
