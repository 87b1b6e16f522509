"""Handover: who can lead in a broker's place, and whether a group goes on while it is stopped.

    leaves      others in the sync-state set that live ──▶ enough for messages? ──▶ may be stopped
    master      the longest log of these ──▶ leads next

An operator asks for it, before a broker is restarted or taken away. Which of the set leads makes no
difference to what was acknowledged: every member has all of that. Where fewer logs are enough for
an acknowledgement, the controller elects the chosen one once it has what the others have.
"""

from collections.abc import Collection

import msgspec

UNKNOWN_END = -1
"""End of a log that nobody tells: sorts behind all others."""


class MemberStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of a group, as its controller and the broker itself say."""

    broker_id: int
    is_in_sync: bool
    """Whether it is in the sync-state set."""
    is_alive: bool
    """Whether the controller hears of it."""
    log_end: int = UNKNOWN_END
    """Position at which its log ends."""


def stand_ins(members: Collection[MemberStanding], leaving: int) -> list[MemberStanding]:
    """Members that may lead while a broker is away, the best first: the longest log, lowest id."""
    able = [one for one in members if one.is_alive and one.is_in_sync and one.broker_id != leaving]
    return sorted(able, key=lambda one: (-one.log_end, one.broker_id))


def may_leave(members: Collection[MemberStanding], leaving: int, needed: int) -> bool:
    """Whether messages are taken while a broker is away: so many logs have to hold each."""
    return len(stand_ins(members, leaving)) >= max(needed, 1)


def bytes_lost(members: Collection[MemberStanding], winner: int) -> int | None:
    """Bytes of the longest log that the winner of an election lacks, and that are lost if it leads.

    As far as brokers answer: there may be more in a log that cannot be asked. None: the winner's
    own log is not known, or nobody's else.
    """
    ends = {one.broker_id: one.log_end for one in members if one.log_end != UNKNOWN_END}
    own = ends.pop(winner, None)
    return None if own is None or not ends else max(max(ends.values()) - own, 0)
