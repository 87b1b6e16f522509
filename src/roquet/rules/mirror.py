"""Mirror: the queue that gets a copy, its properties, and offsets of one cluster as another's.

    source queue   0 1 2 3 4 5 6           3 was copied from the target, and does not go back
    target queue   0 1 2 a b 4 5 6         a, b are the target's own messages

A message goes one hop: a copy is never copied again, so that no set of mirrors makes a loop. Each
target queue gets the copies of one source queue at most; they are in order, and the last one says
how far the source queue was copied.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from roquet.model import properties as names
from roquet.model.queue import MessageQueue

KEPT: Final = frozenset(
    {
        names.UNIQUE_KEY, names.KEYS, names.TAGS, names.SHARDING_KEY, names.PRIORITY,
        names.TRACE_CONTEXT,
    }
)  # fmt: skip
"""System properties that a copy keeps; the others say what happened to the original."""

ORIGIN_PARTS: Final = 6
_PLAIN: Final = {"%25": "%", "%2F": "/", "%01": "\x01", "%02": "\x02"}
_ESCAPED: Final = re.compile("|".join(_PLAIN))
_ESCAPES: Final = {ord(character): escape for escape, character in _PLAIN.items()}
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)


class Origin(msgspec.Struct, frozen=True):
    """The original of a copy."""

    cluster: str
    """The name of the cluster that it was copied from."""
    queue: MessageQueue
    offset: int
    message_id: str
    """The producer's id; empty if it set none."""

    def is_from(self, cluster: str, queue: MessageQueue) -> bool:
        """Whether the original is in this queue of this cluster."""
        return (self.cluster, self.queue) == (cluster, queue)

    @property
    def text(self) -> str:
        """The value of the property ROQUET_MIRRORED."""
        queue = self.queue
        parts = (
            self.cluster, queue.topic, queue.broker_name, str(queue.queue_id), str(self.offset),
            self.message_id,
        )  # fmt: skip
        return "/".join(part.translate(_ESCAPES) for part in parts)


def origin_of(properties: Mapping[str, str]) -> Origin | None:
    """The original of a copy; None for any other message.

    A message that an application or a resend made of a copy, with its properties, is a new message:
    it has an id of its own.
    """
    text = properties.get(names.MIRRORED_FROM, "")
    parts = [_ESCAPED.sub(lambda found: _PLAIN[found[0]], part) for part in text.split("/")]
    if len(parts) != ORIGIN_PARTS:
        return None
    cluster, topic, broker, queue_id, offset, message_id = parts
    if not (_NUMBER.fullmatch(queue_id) and _NUMBER.fullmatch(offset)):
        return None
    origin = Origin(cluster, MessageQueue(topic, broker, int(queue_id)), int(offset), message_id)
    return origin if message_id == properties.get(names.UNIQUE_KEY, "") else None


def copied_properties(
    properties: Mapping[str, str], cluster: str, queue: MessageQueue, offset: int, born_ms: int
) -> dict[str, str]:
    """The properties of a copy: the users', those of `KEPT`, its origin and its time of birth."""
    kept = {n: v for n, v in properties.items() if n in KEPT or n not in names.RESERVED}
    origin = Origin(cluster, queue, offset, properties.get(names.UNIQUE_KEY, ""))
    return {**kept, names.MIRRORED_FROM: origin.text, names.BORN_MS: str(born_ms)}


def target_queues(
    sources: Sequence[MessageQueue], brokers: Sequence[str]
) -> dict[MessageQueue, MessageQueue]:
    """The target queue of each source queue, no two the same; `brokers` are those of the target.

    Queue i goes to queue i of the broker of the same name, else of brokers in order of their names.
    Where k source brokers share a target broker, queue i of the j-th goes to queue i·k + j. So a
    topic that gets more queues does not move those that it has. Raises ValueError without brokers.
    """
    targets = sorted(set(brokers))
    if not targets:
        raise ValueError("the target has no broker")
    known = sorted({queue.broker_name for queue in sources})
    strangers = [name for name in known if name not in targets]
    home = {name: name for name in targets}
    home |= {name: targets[at % len(targets)] for at, name in enumerate(strangers)}
    mapped = {}
    for queue in sources:
        broker = home[queue.broker_name]
        sharing = [name for name in known if home[name] == broker]
        queue_id = queue.queue_id * len(sharing) + sharing.index(queue.broker_name)
        mapped[queue] = MessageQueue(queue.topic, broker, queue_id)
    return mapped


def translated_offset(
    first_unread: int, own_unread: int | None, committed: int | None
) -> int | None:
    """The offset to commit for a group in the target queue; None to leave it as it is.

    `first_unread` is where the copies begin that it has not read, `own_unread` where the target's
    own messages begin that it has not read; None if it has read all. The lower one counts, so that
    nothing is skipped. Progress never moves back.
    """
    offset = first_unread if own_unread is None else min(first_unread, own_unread)
    return offset if committed is None or offset > committed else None
