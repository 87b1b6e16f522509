"""Formation: waits until controllers have masters elected and messages are taken, after a start."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from roquet.model.errors import RoquetError
from roquet.rules.election.handover import stand_ins

if TYPE_CHECKING:
    from roquet.admin.client import AdminClient
    from roquet.admin.controllers import GroupStatus, ReplicaMember

FORMATION_TIMEOUT_S: Final = 30
"""Longest wait: a replica whose log is damaged must not keep others from being shown."""

POLL_S: Final = 0.1
"""Between two questions to the controller."""


class Formation(NamedTuple):
    """Groups after a start, as far as their controllers know them."""

    members: "Mapping[str, ReplicaMember]"
    """Brokers by address."""
    unformed: Sequence[str]
    """Names that took no messages in time; none after a stop signal."""


async def formed(
    admin: "AdminClient",
    names: Collection[str],
    controllers: Sequence[str],
    needed: int,
    stop: asyncio.Event,
) -> Formation:
    """Wait until each name has a master with so many logs in sync, or until a stop signal."""
    members: dict[str, ReplicaMember] = {}
    unformed = list(names)
    with suppress(TimeoutError):
        async with asyncio.timeout(FORMATION_TIMEOUT_S):
            while unformed and not stop.is_set():
                for name in tuple(unformed):
                    group = await _group(admin, name, controllers)
                    members |= {one.address: one for one in group.members} if group else {}
                    if group is not None and await _takes_messages(admin, group, needed):
                        unformed.remove(name)
                if unformed:
                    await asyncio.sleep(POLL_S)
    return Formation(members, [] if stop.is_set() else unformed)


async def _group(
    admin: "AdminClient", name: str, controllers: Sequence[str]
) -> "GroupStatus | None":
    from roquet.admin import controllers as groups

    try:
        return await groups.group(admin, name, controllers)
    except RoquetError:  # nobody leads yet, or nobody has registered
        return None


async def _takes_messages(admin: "AdminClient", group: "GroupStatus", needed: int) -> bool:
    """Whether a master leads that has enough members in sync, and that name servers know."""
    master = group.master
    if master is None or len(stand_ins(group.standings, master.broker_id)) + 1 < needed:
        return False
    try:
        return (await admin.leaders()).get(group.broker) == master.address
    except RoquetError:
        return False
