"""A queue changes hands: whose it is, and how long its new owner waits for the old one's commit.

    members change ──▶ the loser commits what it has finished, and drops the queue
                   └─▶ the taker asks where to read on ─── waits ───▶ at the loser's commit, or 1 s

Without the wait the taker would read the progress from before that commit, and handle again what
the loser has finished. Nobody waits where no such commit can come:

- nobody else was seen at the queue, or who was has left the group (a first start, a death);
- somebody has committed since the members changed (the loser was quicker than the taker);
- nothing is left to be read after the progress that is saved;
- the members changed long ago: whoever asks now asks for another reason;
- the taker has waited for its second already: it may take many queues one after the other.

A commit that the loser makes between the change and its drop, because it was time for one, is
mistaken for the last one. Then a message may be handled twice, which at-least-once allows.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

HANDOVER_MS: Final = 1_000
"""A loser hears of the change at once, and its commit takes a moment: more is not worth it."""

SETTLED_MS: Final = 30_000
"""After a change: members look by themselves each 20 s, so all have divided the queues again."""

ACTIVITY_MS: Final = 60_000
"""For so long somebody who was seen counts as a second owner: four pulls that waited in vain."""

NEVER: Final = -1


class QueueActivity(msgspec.Struct, kw_only=True):
    """What was seen of one member at one queue; times in ms."""

    begun_ms: int = NEVER
    """The first sign of work since it last took the queue."""
    seen_ms: int = NEVER
    """The last one."""


QueueActivities = Mapping[str, QueueActivity]
"""By member; who took the queue or gave a sign last stands last."""


def active_owners(holds: QueueActivities, now_ms: int) -> list[str]:
    """Who works on a queue: mostly one, but two while they differ about who their group is.

    The owner is the one who began last. Another one who was seen at work long enough after that is
    an owner as well: a loser's last commit comes within the time of a hand-over.
    """
    begun = {member: hold for member, hold in holds.items() if hold.begun_ms != NEVER}
    if not begun:
        return []
    last = max(reversed(list(begun)), key=lambda member: begun[member].begun_ms)
    since_ms = begun[last].begun_ms + HANDOVER_MS
    return sorted(
        member
        for member, hold in begun.items()
        if member == last or (hold.seen_ms > since_ms and now_ms - hold.seen_ms <= ACTIVITY_MS)
    )


def previous_owner(holds: QueueActivities, taker: str) -> str | None:
    """Whose commit a taker has to wait for: the last one at the queue, if that is another one."""
    last = next(reversed(list(holds)), None)
    return None if last == taker else last


def handover_wait_ms(now_ms: int, changed_ms: int, first_asked_ms: int) -> int:
    """How long a taker may wait that asked for its first queue since the change at this time."""
    if now_ms - changed_ms > SETTLED_MS:
        return 0
    return max(first_asked_ms + HANDOVER_MS - now_ms, 0)
