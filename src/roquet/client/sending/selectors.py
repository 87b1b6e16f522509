"""Selectors: choose the queue of a message.

    await producer.send("orders", b"...", order_key="4711")              # one key, one queue
    await producer.send("orders", b"...", selector=MachineRoom("west"))
    await producer.send("orders", b"...", selector=lambda queues, message: queues[0])

A selector is a function of the queues and the message. All attempts use the queue that it returns.
A selector that spreads messages, which has `spreads = True` as `Chance` and `MachineRoom`, is asked
again for each attempt, without the queues of the broker that has just failed.
"""

from collections.abc import Callable, Sequence
from random import Random

import msgspec

from roquet.client.config import Selector
from roquet.model.errors import UsageError
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.rules.queue_selection import (
    BrokersToAvoid,
    by_hash,
    by_random,
    in_machine_room,
    next_queue,
)
from roquet.wire.java_hash import hash_code


class Chance:
    """A random queue, all with the same probability."""

    spreads = True

    def __init__(self, rng: Random | None = None) -> None:
        self._rng = rng or Random()

    def __call__(self, queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
        """Return a random queue."""
        return queues[by_random(self._rng.random(), len(queues))]


class MachineRoom:
    """The queues of brokers in the producer's machine room in turn; all queues if it has none.

    A broker's room is its name up to the first `-`, as in RocketMQ's consumer strategy;
    `room_of_broker` replaces that.
    """

    spreads = True

    def __init__(
        self,
        room: str,
        room_of_broker: Callable[[str], str | None] | None = None,
        rng: Random | None = None,
    ) -> None:
        if not room:
            raise UsageError("the machine room has no name")
        self._room = room
        self._room_of_broker = room_of_broker or _prefix
        self._turn = (rng or Random()).getrandbits(16)

    def __call__(self, queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
        """Return the next queue in turn."""
        near = in_machine_room(queues, self._room, self._room_of_broker)
        queue, self._turn = next_queue(near, self._turn)
        return queue


class KeyHash:
    """A queue by the hash of a key in the message: `KeyHash(lambda m: m.tag)`.

    Texts are hashed as in Java, and so are integers of 32 and 64 bits: producers in both languages
    choose the same queue.
    """

    spreads = False

    def __init__(self, key: Callable[[Message], str | int | None]) -> None:
        self._key = key

    def __call__(self, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        """Return the queue of the message's key."""
        return queues[by_hash(java_hash(self._key(message)), len(queues))]


class QueueSelection(msgspec.Struct, frozen=True):
    """A selector, and the message to call it with."""

    selector: Selector
    message: Message

    @property
    def is_bound(self) -> bool:
        """Whether all attempts use the queue that was chosen first."""
        return not getattr(self.selector, "spreads", False)

    def choose(
        self, queues: Sequence[MessageQueue], avoid: str | None, usable: BrokersToAvoid | None
    ) -> MessageQueue:
        """Call the selector; UsageError when it raises or returns none of the queues."""
        offered = tuple(queues if self.is_bound else _usable_queues(queues, avoid, usable))
        name = getattr(self.selector, "__qualname__", type(self.selector).__qualname__)
        try:
            queue = self.selector(offered, self.message)
        except Exception as error:
            raise UsageError(f"selector {name} failed: {error!r}; nothing was sent") from error
        if queue not in offered:
            raise UsageError(
                f"selector {name} returned {queue!s}, which is none of the {len(offered)} queues "
                "that it was given; nothing was sent"
            )
        return queue


def java_hash(key: str | int | None) -> int:
    """Java's hash code of a str, a bool, or an int as an Integer or else as a Long."""
    if isinstance(key, str):
        return hash_code(key)
    if isinstance(key, bool):
        return 1231 if key else 1237
    if not isinstance(key, int):
        raise UsageError(f"a key is a str or an int, not {key!r}")
    if -(2**31) <= key < 2**31:
        return key
    folded = (key ^ key >> 32) & 0xFFFF_FFFF
    return folded - (2**32 if folded & 2**31 else 0)


def _usable_queues(
    queues: Sequence[MessageQueue], avoid: str | None, usable: BrokersToAvoid | None
) -> Sequence[MessageQueue]:
    """The queues without those of failed brokers, or all if none would be left."""
    barred = {avoid} if usable is None else usable.out_of_use | {avoid}
    return [queue for queue in queues if queue.broker_name not in barred] or queues


def _prefix(broker_name: str) -> str:
    return broker_name.partition("-")[0]
