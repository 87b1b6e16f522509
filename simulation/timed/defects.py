"""Defects of the broker, planted to show that the timed workload finds such bugs.

Each breaks one promise: about time, transactions, retries, or what survives a restart.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from roquet.broker.handlers.messages import send_back
from roquet.broker.ingest.append import Ingest
from roquet.broker.services import delayed_delivery
from roquet.broker.services.timer.deliveries import TimerDeliveries
from roquet.broker.services.transactions.half_messages import HalfMessage, HalfQueue
from roquet.broker.services.transactions.transactions import Transactions
from roquet.model import properties as props
from roquet.model.names import is_dlq
from roquet.rules.delay.delay_levels import DEAD_LETTER, DEFAULT_LEVELS
from roquet.store.store import AppendResult
from roquet.testing.clock import this_loop
from roquet.wire.records.property_text import decode_properties
from roquet.wire.records.record import Record
from simulation.patching import PlantedDefect, by_name, patched, planted, wrapped

HASTE_MS: Final = 1_200
"""How much too early the planted timer delivers."""

OVERDUE_MS: Final = 5_000
"""A message that is late by more can only be overdue after a restart."""


@planted(TimerDeliveries, "step")
def early_timer(step: Any, deliveries: TimerDeliveries, now_ms: int) -> Any:
    """Messages with a delivery time come a second early."""
    return step(deliveries, now_ms + HASTE_MS) - HASTE_MS


@contextmanager
def unnoted_commit() -> Iterator[None]:
    """A commit is answered but not stored: the half message is checked, and committed again."""

    def forget(commit: Any, transactions: Transactions, half: HalfMessage) -> None:
        with patched(Transactions, "end", _nothing):
            commit(transactions, half)

    with (
        wrapped(Transactions, "commit", forget),
        patched(HalfQueue, "was_delivered", _nothing),
    ):
        yield


@planted(send_back, "next_level")
def skipped_level(next_level: Any, asked: int, times: int, limit: int) -> int:
    """A failed message waits at the delay level below the right one."""
    level: int = next_level(asked, times, limit)
    return level if level == DEAD_LETTER else max(1, level - 1)


@planted(Ingest, "reappend")
def dropped_dead_letter(
    reappend: Any, ingest: Ingest, record: Record, *, topic: str, **place: Any
) -> Any:
    """After its last try a message is dropped, though its consumer is told that it is stored."""
    if is_dlq(topic):
        return AppendResult(record.queue_offset, record.position, record.size)
    return reappend(ingest, record, topic=topic, **place)


@planted(delayed_delivery, "decode_records")
def forgotten_overdue(decode_records: Any, *parts: Any) -> Iterator[Record]:
    """Messages that fell due while the broker was down are never delivered."""
    now_ms = this_loop().clock.now_ms()
    for record in decode_records(*parts):
        level = int(decode_properties(record.properties)[props.DELAY])
        if now_ms - record.stored_ms < DEFAULT_LEVELS[level - 1] + OVERDUE_MS:
            yield record


@planted(Transactions, "restore")
def forgotten_halves(restore: Any, transactions: Transactions) -> None:
    """A broker that starts takes all half messages for ended."""
    restore(transactions)
    transactions.halves.forget(transactions.queue.bounds()[1])


def _nothing(*_: object) -> None:
    """Do nothing."""


DEFECTS: Final[Mapping[str, PlantedDefect]] = MappingProxyType(
    by_name(
        early_timer,
        unnoted_commit,
        skipped_level,
        dropped_dead_letter,
        forgotten_overdue,
        forgotten_halves,
    )
)
