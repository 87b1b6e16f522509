"""Acting master: which replica stands in for a master that is away, and what that one takes back.

    master alive     nobody acts
    master away      the replica with the lowest id of those alive serves reads, progress and locks
    master returns   it takes the replica's progress over before it takes messages

Source: Apache RocketMQ 5.5.0, BrokerController.updateMinBroker and BrokerPreOnlineService.
"""

from collections.abc import Collection

import msgspec

from roquet.model.topic import MASTER_ID, DataVersion


class ReturnFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A master that returns, and a replica of its group."""

    own_end: int
    """Position of the end of the master's log."""
    replica_end: int
    """Position of the end of the replica's log."""


def acts_as_master(members: Collection[int], broker_id: int) -> bool:
    """Whether a broker stands in for the master, given the ids of its group that are alive."""
    return MASTER_ID not in members and min(members, default=None) == broker_id


def may_take_progress(facts: ReturnFacts) -> bool:
    """Whether the replica's progress may be believed.

    A longer log than the master's means that the master has lost messages: progress of deliveries
    would cover some of them, and they would never come.
    """
    return facts.replica_end <= facts.own_end


def is_as_new(theirs: DataVersion | None, own: DataVersion) -> bool:
    """Whether a table of the replica is not older than the master's own."""
    return theirs is not None and theirs.order >= own.order
