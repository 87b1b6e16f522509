"""Defects of the client, planted to show that the balance workload finds such bugs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from roquet.client.reading.message import InboundMessage
from roquet.client.reading.ordered_reader import OrderedReader
from roquet.client.reading.queue_reader import QueueReader
from roquet.client.rebalance.assigned_queues import AssignedQueues
from roquet.client.rebalance.queue_locks import QueueLocks
from roquet.client.rebalance.rebalancer import Rebalancer
from roquet.model.queue import MessageQueue
from roquet.rules.consumption.progress import ConsumeWindow
from simulation.patching import patched
from simulation.simulator import PlantedDefect


@contextmanager
def early_commit() -> Iterator[None]:
    """Progress counts messages that were handed out, not those that were handled."""
    with patched(ConsumeWindow, "committable", property(lambda window: window.next_offset)):
        yield


@contextmanager
def skipped_commit() -> Iterator[None]:
    """A consumer that gives a queue away does not commit its progress."""

    async def save_nothing(self: AssignedQueues, readers: Iterable[QueueReader]) -> None:
        """Do nothing."""

    with patched(AssignedQueues, "save_last", save_nothing):
        yield


@contextmanager
def ignored_lock() -> Iterator[None]:
    """Ordered queues are read without the broker's lock."""

    async def take(_: QueueLocks, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        return set(queues)

    with patched(QueueLocks, "lock", take):
        yield


@contextmanager
def lost_notice() -> Iterator[None]:
    """The broker's notice that members changed is ignored."""

    def hear_nothing(self: Rebalancer, call: object, peer: object) -> None:
        """Do nothing."""

    with patched(Rebalancer, "members_changed", hear_nothing):
        yield


@contextmanager
def reordering_retry() -> Iterator[None]:
    """A failed message of an ordered queue lets the next one pass."""

    async def step_aside(self: Any, message: InboundMessage, pause_ms: int) -> None:
        self._ended()
        self._hand_out()
        await QueueReader.hand_out_later(self, message, pause_ms)

    with patched(OrderedReader, "hand_out_later", step_aside):
        yield


DEFECTS: Final[Mapping[str, PlantedDefect]] = MappingProxyType(
    {
        "early-commit": early_commit,
        "skipped-commit": skipped_commit,
        "ignored-lock": ignored_lock,
        "lost-notice": lost_notice,
        "reordering-retry": reordering_retry,
    }
)
"""By name."""
