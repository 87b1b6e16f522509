"""Hand-over of a queue: who owns it, and how long the new owner waits for the old one's commit.

    members change ──▶ the loser commits what it has finished, and drops the queue
                   └─▶ the taker asks where to read on ─── waits ───▶ at the loser's commit, or 1 s

Without the wait the taker would read the progress from before that commit, and handle again what
the loser has finished. There is no wait where no such commit can come:

- nobody else was seen at the queue, or the other member has left (a first start, a death);
- a commit has come since the members changed (the loser was quicker than the taker);
- nothing is left to read after the saved progress;
- the members changed long ago: a query now has another reason;
- the taker has waited for its second already: it may take many queues in sequence.

A routine commit of the loser between the change and its drop is mistaken for its last one. Then a
message may be handled twice, which at-least-once allows.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

HANDOVER_MS: Final = 1_000
"""A loser is notified of the change at once, and its commit takes a moment: a longer wait is not
worth it."""

SETTLED_MS: Final = 30_000
"""After a change: members rebalance on their own every 20 s, so all have divided the queues
again."""

ACTIVITY_MS: Final = 60_000
"""A member that was seen this recently counts as a second owner: four pulls that waited in vain."""

NEVER: Final = -1


class QueueActivity(msgspec.Struct, kw_only=True):
    """Activity of one member at one queue; times in ms."""

    begun_ms: int = NEVER
    """First sign of activity since it last took the queue."""
    seen_ms: int = NEVER
    """Last sign of activity."""


QueueActivities = Mapping[str, QueueActivity]
"""By member; the one that took the queue or was active last comes last."""


def active_owners(activities: QueueActivities, now_ms: int) -> list[str]:
    """Members that work on a queue: mostly one, but two while they disagree about their group.

    The owner is the one who began last. Another member that was active long enough after that is an
    owner as well: a loser's last commit comes within the time of a hand-over.
    """
    begun = {member: a for member, a in activities.items() if a.begun_ms != NEVER}
    if not begun:
        return []
    last = max(reversed(list(begun)), key=lambda member: begun[member].begun_ms)
    since_ms = begun[last].begun_ms + HANDOVER_MS
    return sorted(
        member
        for member, activity in begun.items()
        if member == last
        or (activity.seen_ms > since_ms and now_ms - activity.seen_ms <= ACTIVITY_MS)
    )


def previous_owner(activities: QueueActivities, taker: str) -> str | None:
    """Member whose commit a taker waits for: the last one at the queue, unless it is the taker."""
    last = next(reversed(list(activities)), None)
    return None if last == taker else last


def handover_wait_ms(now_ms: int, changed_ms: int, first_asked_ms: int) -> int:
    """How long a taker may wait, from the times of the change and of its first query since."""
    if now_ms - changed_ms > SETTLED_MS:
        return 0
    return max(first_asked_ms + HANDOVER_MS - now_ms, 0)
