"""DeliveryCheckpoints: how far deliveries are, as far as the sync-state set has what they stored.

    delivered ─▶ stored in the log ─▶ progress noted with the log's end ─▶ confirmed ─▶ safe

A master that is replaced may lose the end of its log, and what it has delivered with it. If it is
elected again before it has copied the progress of the master in between, its own must not cover
messages that nobody has: it goes back to the last progress that was safe, and some messages come
twice. Replicas are told of safe progress alone, and no other is saved: a master that is killed
begins from its files, and a replica may lose the end of its log as well. So it is with delay
levels, the timer, popped messages and transactions. Where roles are fixed nothing is noted: a log
is never cut, and is brought to the disk before progress is saved.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from roquet.broker.services.revive import NOTED_GROUP, PopRevive
from roquet.broker.services.timer.timer import Timer
from roquet.broker.services.transactions.transactions import GROUP as TRANSACTION_GROUP
from roquet.broker.services.unconfirmed_pops import GroupQueue
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.broker.tables.delay_offsets import DelayOffsetTable
from roquet.broker.tables.offsets import SEPARATOR, OffsetRows
from roquet.log_records import logger
from roquet.model.names import HALF_TOPIC, OP_HALF_TOPIC, REVIVE_GROUP
from roquet.net.clock import Clock
from roquet.store.store import Store
from roquet.store.timer.layout import TimerCheckpoint

log = logger(__name__)

NOTE_MS: Final = 200
"""Ms between two notes: so much of the deliveries may come again."""

PENDING_MAX: Final = 128
"""Notes that wait for their confirmation; later ones are left out while that many wait."""

CONFIRM_MS: Final = 500
"""Ms that a master without a lease waits for what it has stored to be confirmed."""

SAVE_MS: Final = 15_000
"""Ms that a save waits for the same: a member that is so far behind leaves the set by default."""

LOOK_MS: Final = 20
"""Ms between two looks for that."""


class DeliveryProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far deliveries were when the log ended at a position."""

    log_end: int
    delays: DelayOffsetTable
    timer: TimerCheckpoint
    offsets: Mapping[GroupQueue, int | None]
    """Progress of the broker's own groups: revival of popped messages, ends of transactions."""


class DeliveryCheckpoints(msgspec.Struct, eq=False):
    """Notes of the progress of one master's deliveries."""

    store: Store
    tables: BrokerTables
    timer: Timer
    revive: PopRevive
    clock: Clock
    _safe: DeliveryProgress | None = None
    """None: this broker does not deliver."""
    _pending: deque[DeliveryProgress] = msgspec.field(default_factory=deque)
    _term: int = 0
    """Count of the beginnings and ends of leads."""
    _is_back: bool = False
    """Whether the tables have gone back to safe progress at the end of a lead."""
    _lowered: set[str] = set()
    """Rows of groups' progress that were told or saved lower than they were."""

    def begin(self) -> None:
        """Begin to lead: the progress is that of a master whose log is all here."""
        self._change_term()
        self._safe = self._progress()

    def note(self, _now_ms: int = 0) -> None:
        """Note the progress of this moment, and see which notes are safe by now."""
        if self._settle():
            self._note_lowered()
        if len(self._pending) < PENDING_MAX:
            self._pending.append(self._progress())

    def safe_progress(self) -> DeliveryProgress:
        """Progress that replicas are told: the ends of their logs may be cut as well."""
        self._settle()
        return self._safe if self._safe is not None and self._is_unconfirmed else self._progress()

    def lower(self, rows: OffsetRows) -> None:
        """Lower copied progress of groups to what is safe, before it is told or saved.

        Those rows are told and saved again once more of it is safe.
        """
        self._settle()
        if self._safe is None or not self._is_unconfirmed:
            return
        for (group, topic, queue_id), limit in self._limits(self._safe):
            queues = rows.get(key := f"{topic}{SEPARATOR}{group}", {})
            if queue_id not in queues or (limit is not None and queues[queue_id] <= limit):
                continue
            self._lowered.add(key)
            if limit is None:
                del queues[queue_id]
            else:
                queues[queue_id] = limit

    async def wait_confirmed(self) -> bool:
        """Wait until all that is stored now is confirmed, so that progress up to now may be saved.

        False when that takes too long, or this broker leads no more. A replica's progress is its
        master's, and may be saved.
        """
        if self._safe is None or self._is_back:
            return True
        end, term = self.store.end_position, self._term
        deadline_ms = self.clock.monotonic_ms() + SAVE_MS
        while self.store.confirmed_position < end:
            if self.clock.monotonic_ms() >= deadline_ms or self._term != term:
                return False
            await self.clock.sleep(LOOK_MS)
        return self._term == term

    async def go_back(self, *, may_wait: bool) -> None:
        """Go back to safe progress, unless all that was stored is confirmed.

        For a broker that leads no more, or has no lease, and delivers nothing meanwhile. One that
        still has its replicas `may_wait` for their reports.
        """
        if self._safe is None:
            return
        deadline_ms = self.clock.monotonic_ms() + CONFIRM_MS * may_wait
        while self._is_unconfirmed and self.clock.monotonic_ms() < deadline_ms:
            await self.clock.sleep(LOOK_MS)
        self._settle()
        if self._is_unconfirmed:
            await self._take(self._safe)
        self._change_term()

    def _change_term(self) -> None:
        self._safe, self._is_back = None, False
        self._term += 1
        self._pending.clear()
        self.revive.unconfirmed.clear()
        self._note_lowered()

    def _note_lowered(self) -> None:
        self.tables.offsets.note_changed(self._lowered)
        self._lowered.clear()

    @property
    def _is_unconfirmed(self) -> bool:
        return self.store.confirmed_position < self.store.end_position

    def _settle(self) -> bool:
        """See what is safe by now; whether more is than before."""
        confirmed, before = self.store.confirmed_position, self._safe
        while self._pending and self._pending[0].log_end <= confirmed:
            self._safe = self._pending.popleft()
        self.revive.unconfirmed.settle(confirmed)
        return self._safe is not before

    async def _take(self, safe: DeliveryProgress) -> None:
        """Go back; after a StoreError it is done again.

        Nothing revives messages whose pop has no confirmed checkpoint, so they are popped again. A
        checkpoint that was stored again, or for another invisible time, has an earlier one.
        """
        log.info("deliveries go on from where the log ended at %d", safe.log_end)
        self.tables.delay_offsets.copy(safe.delays)
        offsets = self.tables.offsets
        for queue, start in self.revive.unconfirmed.starts().items():
            progress = offsets.get(*queue)
            if progress is not None and progress > start:
                offsets.commit(*queue, start)
        for queue in self._own_queues():
            offsets.restore(*queue, safe.offsets.get(queue))
        self._is_back = True
        if safe.timer != self.timer.checkpoint:
            await self.timer.follow(safe.timer)

    def _limits(self, safe: DeliveryProgress) -> Iterator[tuple[GroupQueue, int | None]]:
        """Largest safe offset of progress that may be beyond it; None: there may be none."""
        for queue in self._own_queues():
            yield queue, safe.offsets.get(queue)
        yield from self.revive.unconfirmed.starts().items()

    def _own_queues(self) -> Iterator[GroupQueue]:
        for queue_id in self.store.queue_ids(self.revive.topic):
            yield REVIVE_GROUP, self.revive.topic, queue_id
            yield NOTED_GROUP, self.revive.topic, queue_id
        for topic in (HALF_TOPIC, OP_HALF_TOPIC):
            yield TRANSACTION_GROUP, topic, 0

    def _progress(self) -> DeliveryProgress:
        return DeliveryProgress(
            log_end=self.store.end_position,
            delays=self.tables.delay_offsets.content(),
            timer=self.timer.checkpoint,
            offsets={queue: self.tables.offsets.get(*queue) for queue in self._own_queues()},
        )
