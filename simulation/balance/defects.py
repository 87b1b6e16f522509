"""Defects of the client, planted to show that the balance workload finds such bugs."""

from collections.abc import Iterator, Mapping, Sequence
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
from roquet.rules.consumption.pull import ConsumeWindow
from simulation.patching import PlantedDefect, by_name, patched, planted


@contextmanager
def early_commit() -> Iterator[None]:
    """Progress counts messages that were handed out, not those that were handled."""
    with patched(ConsumeWindow, "committable", property(lambda window: window.next_offset)):
        yield


@planted(AssignedQueues, "save_last")
async def skipped_commit(*_: object) -> None:
    """A consumer that gives a queue away does not commit its progress."""


@planted(QueueLocks, "lock")
async def ignored_lock(
    _lock: Any, _locks: QueueLocks, queues: Sequence[MessageQueue]
) -> set[MessageQueue]:
    """Ordered queues are read without the broker's lock."""
    return set(queues)


@planted(Rebalancer, "members_changed")
def lost_notice(*_: object) -> None:
    """The broker's notice that members changed is ignored."""


@planted(OrderedReader, "hand_out_later")
async def reordering_retry(_later: Any, self: Any, message: InboundMessage, pause_ms: int) -> None:
    """A failed message of an ordered queue lets the next one pass."""
    self._ended()
    self._hand_out()
    await QueueReader.hand_out_later(self, message, pause_ms)


DEFECTS: Final[Mapping[str, PlantedDefect]] = MappingProxyType(
    by_name(early_commit, skipped_commit, ignored_lock, lost_notice, reordering_retry)
)
