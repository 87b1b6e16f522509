"""Lowest broker id: which members of a broker name hear that another one has the lowest id.

Among brokers that stand in for a leader, the member with the lowest id serves reads and delayed
messages. Source: Apache RocketMQ 5.5.0, RouteInfoManager.notifyMinBrokerIdChanged.
"""

import msgspec

from roquet.rules import routing
from roquet.rules.routing import BrokerRegistration, BrokerRegistrations


class LowestIdChange(msgspec.Struct, frozen=True, kw_only=True):
    """The member of a broker name that now has the lowest id, and the members that hear of it."""

    broker_name: str
    broker_id: int
    address: str
    lost_address: str | None = None
    """Address of the member that was lost, if that is the reason."""
    ha_address: str | None = None
    """Where a new member's log is streamed from; None after a loss."""
    told: tuple[str, ...]
    """Addresses to notify."""


def after_registration(
    before: BrokerRegistrations, after: BrokerRegistrations, new: BrokerRegistration
) -> LowestIdChange | None:
    """The change by a registration; None unless its id is lower than those known before.

    Every other member hears of it; a broker hears of itself when it is alone, which is a follower
    that became the leader.
    """
    known = routing.members(before, new.broker_name)
    if not known or new.broker_id >= min(known):
        return None
    members = routing.members(after, new.broker_name)
    others = tuple(address for i, address in members.items() if i != new.broker_id)
    return LowestIdChange(
        broker_name=new.broker_name,
        broker_id=new.broker_id,
        address=new.address,
        ha_address=new.ha_address,
        told=others or (new.address,),
    )


def after_loss(after: BrokerRegistrations, lost: BrokerRegistration) -> LowestIdChange | None:
    """The change by a loss, for all that are left; None unless the lost id was the lowest.

    Only brokers that stand in for a leader hear of it.
    """
    members = routing.members(after, lost.broker_name)
    if not members or lost.broker_id > (lowest := min(members)):
        return None
    if not after[lost.broker_name, lowest].enable_acting_master:
        return None
    return LowestIdChange(
        broker_name=lost.broker_name,
        broker_id=lowest,
        address=members[lowest],
        lost_address=lost.address,
        told=tuple(members.values()),
    )
