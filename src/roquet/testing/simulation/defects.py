"""Defects: bugs that can be planted in the client, to show that the simulation finds such bugs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from roquet.client.assignment import Assignment
from roquet.client.holding import Holding
from roquet.client.locks import QueueLocks
from roquet.client.ordered import OrderedReader
from roquet.client.reader import QueueReader
from roquet.client.received import Received
from roquet.model.queue import MessageQueue
from roquet.rules.progress import Window
from roquet.testing.simulation.planting import replaced
from roquet.testing.simulation.run import Defect


@contextmanager
def early_commit() -> Iterator[None]:
    """Progress counts what was handed out, not what was handled."""
    with replaced(Window, "committable", property(lambda window: window.next_offset)):
        yield


@contextmanager
def skipped_commit() -> Iterator[None]:
    """Who gives a queue away does not save how far it is."""

    async def save_nothing(self: Holding, readers: Iterable[QueueReader]) -> None:
        """As if there were no need."""

    with replaced(Holding, "save_last", save_nothing):
        yield


@contextmanager
def ignored_lock() -> Iterator[None]:
    """Ordered queues are read without the broker's lock."""

    async def take(_: QueueLocks, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        return set(queues)

    with replaced(QueueLocks, "lock", take):
        yield


@contextmanager
def lost_notice() -> Iterator[None]:
    """The broker's word that members changed is not heard."""

    def hear_nothing(self: Assignment, call: object, peer: object) -> None:
        """As if it had not come."""

    with replaced(Assignment, "_members_changed", hear_nothing):
        yield


@contextmanager
def reordering_retry() -> Iterator[None]:
    """An ordered message that failed lets the next one pass."""

    async def step_aside(self: Any, message: Received, pause_ms: int) -> None:
        self._ended()
        self._hand_out()
        await QueueReader._again(self, message, pause_ms)

    with replaced(OrderedReader, "_again", step_aside):
        yield


DEFECTS: Final[Mapping[str, Defect]] = MappingProxyType(
    {
        "early-commit": early_commit,
        "skipped-commit": skipped_commit,
        "ignored-lock": ignored_lock,
        "lost-notice": lost_notice,
        "reordering-retry": reordering_retry,
    }
)
"""By name."""
