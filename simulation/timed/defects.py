"""Defects of the broker, planted to show that the timed workload finds such bugs.

Each breaks one promise: about time, transactions, retries, or what survives a restart.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from roquet.broker.handlers.messages import send_back
from roquet.broker.handlers.messages.send_back import SendBackHandler
from roquet.broker.services.delayed_delivery import DelayedDelivery
from roquet.broker.services.timer.deliveries import TimerDeliveries
from roquet.broker.services.transactions.half_messages import HalfMessage, HalfQueue
from roquet.broker.services.transactions.transactions import Transactions
from roquet.model import properties as props
from roquet.rules.delay.retry import DEAD_LETTER, next_level, tries_limit
from roquet.store.store import AppendResult
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import Record
from simulation.patching import patched
from simulation.simulator import PlantedDefect

HASTE_MS: Final = 1_200
"""How much too early the planted timer delivers."""

OVERDUE_MS: Final = 5_000
"""A message that is late by more can only be overdue after a restart."""


@contextmanager
def early_timer() -> Iterator[None]:
    """Messages with a delivery time come a second early."""
    step = TimerDeliveries.step

    def hurry(self: TimerDeliveries, now_ms: int) -> int:
        return step(self, now_ms + HASTE_MS) - HASTE_MS

    with patched(TimerDeliveries, "step", hurry):
        yield


@contextmanager
def unnoted_commit() -> Iterator[None]:
    """A commit is answered but not stored: the half message is checked, and committed again."""
    commit = Transactions.commit

    def forget(self: Transactions, half: HalfMessage) -> None:
        with patched(Transactions, "end", _nothing):
            commit(self, half)

    with (
        patched(Transactions, "commit", forget),
        patched(HalfQueue, "was_delivered", _nothing),
    ):
        yield


@contextmanager
def skipped_level() -> Iterator[None]:
    """A failed message waits at the delay level below the right one."""

    def lower(asked: int, times: int, limit: int) -> int:
        level = next_level(asked, times, limit)
        return max(1, level - 1) if level != DEAD_LETTER else DEAD_LETTER

    with patched(send_back, "next_level", lower):
        yield


@contextmanager
def dropped_dead_letter() -> Iterator[None]:
    """After its last try a message is dropped, though its consumer is told that it is stored."""
    stored = SendBackHandler._stored

    def drop(handler: SendBackHandler, call: Any, group: Any) -> AppendResult:
        record = handler._record(call.offset)
        limit = tries_limit(call.max_reconsume_times, group.retry_max_times)
        if next_level(call.delay_level, record.reconsume_times, limit) == DEAD_LETTER:
            return AppendResult(record.queue_offset, record.position, record.size)
        return stored(handler, call, group)

    with patched(SendBackHandler, "_stored", drop):
        yield


@contextmanager
def forgotten_overdue() -> Iterator[None]:
    """Messages that fell due while the broker was down are never delivered."""
    deliver = DelayedDelivery._deliver

    def pass_by(self: DelayedDelivery, record: Record) -> None:
        level = decode_properties(record.properties)[props.DELAY]
        wait_ms = self.levels[int(level) - 1]
        if self.clock.now_ms() - record.stored_ms < wait_ms + OVERDUE_MS:
            deliver(self, record)

    with patched(DelayedDelivery, "_deliver", pass_by):
        yield


@contextmanager
def forgotten_halves() -> Iterator[None]:
    """A broker that starts takes all half messages for ended."""
    restore = Transactions.restore

    def forget(self: Transactions) -> None:
        restore(self)
        self.halves.forget(self.queue.bounds()[1])

    with patched(Transactions, "restore", forget):
        yield


def _nothing(*_: object) -> None:
    """Do nothing."""


DEFECTS: Final[Mapping[str, PlantedDefect]] = MappingProxyType(
    {
        "early-timer": early_timer,
        "unnoted-commit": unnoted_commit,
        "skipped-level": skipped_level,
        "dropped-dead-letter": dropped_dead_letter,
        "forgotten-overdue": forgotten_overdue,
        "forgotten-halves": forgotten_halves,
    }
)
"""By name."""
