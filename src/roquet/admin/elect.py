"""Elect: an operator has another broker of a name lead, while the present master lives or is lost.

    chosen broker ──▶ 1002 at the controller that leads ──▶ stored ──▶ brokers ──▶ name servers

A member of the sync-state set has every acknowledged message, so that the election of one loses
nothing; where fewer logs are enough (allAckInSyncStateSet=false), the controller waits until it has
what other living members have. One from outside the set is elected with `unclean` alone.
"""

from typing import Final

import msgspec

from roquet.admin.client import AdminClient
from roquet.admin.controllers import GroupStatus, ReplicaMember
from roquet.model.errors import CallRefused, RoquetError
from roquet.rules.election.handover import stand_ins
from roquet.wire.calls.controller import NO_BROKER, ElectMaster

ELECT_TIMEOUT_MS: Final = 15_000
"""Ms for an election: a broker outside the set waits for the end of the master's lease."""

KNOWN_TIMEOUT_MS: Final = 15_000
"""Ms until name servers know the new master; it takes a tenth of a second."""

POLL_MS: Final = 100
"""Ms between two questions to the name servers."""


class ElectedMaster(msgspec.Struct, frozen=True, kw_only=True):
    """The master of a name after an election."""

    broker: str
    broker_id: int
    address: str
    epoch: int
    is_new: bool
    """False: it led before, in the same epoch."""


def candidate(group: GroupStatus, wanted: str | None, *, unclean: bool) -> ReplicaMember | None:
    """The broker to elect: the one of an id or address; None, the best one in the master's place.

    Returns None if the controller is to choose, since nobody leads. Raises UsageError for one that
    there is not, RoquetError for one that cannot be elected.
    """
    master = group.master
    if wanted is None:
        return None if master is None or not master.is_alive else _stand_in(group, master)
    found = group.member(wanted)
    if not found.is_alive:
        raise RoquetError(
            f"{group.broker}: {found.place} is not heard of by the controller: it cannot be elected"
        )
    if not found.is_in_sync and not unclean:
        raise RoquetError(
            f"{group.broker}: {found.place} is not in sync, it may lack acknowledged messages: wait"
            " until `roquet cluster replicas` says yes, or lose them with --unclean"
        )
    return found


def _stand_in(group: GroupStatus, master: ReplicaMember) -> ReplicaMember:
    able = stand_ins(group.standings, master.broker_id)
    if not able:
        raise RoquetError(
            f"{group.broker}: nobody is in sync besides the master, {master.place}: wait until"
            " `roquet cluster replicas` says yes for another one"
        )
    return group.member(str(able[0].broker_id))


async def elect(
    admin: AdminClient, group: GroupStatus, chosen: ReplicaMember | None, *, unclean: bool = False
) -> ElectedMaster:
    """Have a broker of `candidate` elected; returns once name servers know the master.

    Raises RoquetError if nobody was elected.
    """
    call = ElectMaster(
        broker_name=group.broker,
        broker_id=NO_BROKER if chosen is None else chosen.broker_id,
        designate_elect=chosen is not None,
        unclean=unclean,
        invoke_time=admin.clock.now_ms(),
    )
    try:
        reply = await admin.ask(group.controller, call, ELECT_TIMEOUT_MS)
    except CallRefused as error:
        raise RoquetError(
            f"{group.broker}: the controller at {group.controller} elects nobody: {error}"
        ) from error
    if reply.master_broker_id is None or reply.master_address is None:
        raise RoquetError(f"{group.broker}: the controller at {group.controller} names no master")
    elected = ElectedMaster(
        broker=group.broker,
        broker_id=reply.master_broker_id,
        address=reply.master_address,
        epoch=reply.master_epoch or group.epoch,
        is_new=(reply.master_epoch or group.epoch) != group.epoch,
    )
    await wait_known(admin, elected)
    return elected


async def wait_known(admin: AdminClient, elected: ElectedMaster) -> None:
    """Wait until name servers send producers to a new master. Raises RoquetError if they do not."""
    deadline_ms = admin.clock.monotonic_ms() + KNOWN_TIMEOUT_MS
    while not await _is_known(admin, elected):
        if admin.clock.monotonic_ms() >= deadline_ms:
            raise RoquetError(
                f"{elected.broker}: {elected.broker_id} at {elected.address} is elected in epoch"
                f" {elected.epoch}, and name servers have not heard of it after"
                f" {KNOWN_TIMEOUT_MS // 1000} s: see the broker's log"
            )
        await admin.clock.sleep(POLL_MS)


async def _is_known(admin: AdminClient, elected: ElectedMaster) -> bool:
    try:
        leaders = await admin.leaders()
    except RoquetError:  # no broker at all: the last one that was known is lost
        return False
    return leaders.get(elected.broker) == elected.address
