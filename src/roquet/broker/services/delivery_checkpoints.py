"""DeliveryCheckpoints: how far deliveries are, as far as the sync-state set has what they stored.

    delivered ─▶ stored in the log ─▶ progress noted with the log's end ─▶ confirmed ─▶ safe

A master that is replaced may lose the end of its log, and what it has delivered with it. If it is
elected again before it has copied the progress of the master in between, its own must not cover
messages that nobody has: it goes back to the last progress that was safe, and some messages come
twice. Replicas are told of safe progress of delay levels and timer alone, for the same reason. The
revival of popped messages has such progress, too; transactions have theirs in the log. Where roles
are fixed all of the log is confirmed.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from roquet.broker.log.message_log import MessageLog
from roquet.broker.services.revive import NOTED_GROUP, PopRevive
from roquet.broker.services.timer.timer import Timer
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.broker.tables.delay_offsets import DelayOffsetTable
from roquet.log_records import logger
from roquet.model.names import REVIVE_GROUP
from roquet.net.clock import Clock
from roquet.store.timer.layout import TimerCheckpoint

log = logger(__name__)

NOTE_MS: Final = 200
"""Ms between two notes: so much of the deliveries may come again."""

PENDING_MAX: Final = 128
"""Notes that wait for their confirmation; later ones are left out while that many wait."""

CONFIRM_MS: Final = 500
"""Ms that a master without a lease waits for what it has stored to be confirmed."""

LOOK_MS: Final = 20
"""Ms between two looks for that."""


class DeliveryProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far deliveries were when the log ended at a position."""

    log_end: int
    delays: DelayOffsetTable
    timer: TimerCheckpoint
    revived: Mapping[tuple[str, int], int | None]
    """Progress in the revive topic, by group and queue id."""


class DeliveryCheckpoints:
    """Notes of the progress of one master's deliveries."""

    def __init__(
        self,
        message_log: MessageLog,
        tables: BrokerTables,
        timer: Timer,
        revive: PopRevive,
        clock: Clock,
    ) -> None:
        self._store = message_log.store
        self._tables = tables
        self._timer = timer
        self._revive = revive
        self._clock = clock
        self._safe: DeliveryProgress | None = None
        """None: this broker does not deliver."""
        self._pending: deque[DeliveryProgress] = deque()

    def begin(self) -> None:
        """Begin to lead: the progress is that of a master whose log is all here."""
        self._pending.clear()
        self._safe = self._progress()

    def note(self, _now_ms: int = 0) -> None:
        """Note the progress of this moment, and see which notes are safe by now."""
        self._settle()
        if len(self._pending) < PENDING_MAX:
            self._pending.append(self._progress())

    def told(self) -> DeliveryProgress:
        """Progress that replicas are told: the ends of their logs may be cut as well."""
        self._settle()
        return self._safe if self._safe is not None and self._is_unconfirmed else self._progress()

    async def go_back(self, *, may_wait: bool) -> None:
        """Go back to safe progress, unless all that was stored is confirmed.

        For a broker that leads no more, or has no lease, and delivers nothing meanwhile. One that
        still has its replicas `may_wait` for their reports.
        """
        if self._safe is None:
            return
        deadline_ms = self._clock.monotonic_ms() + CONFIRM_MS * may_wait
        while self._is_unconfirmed and self._clock.monotonic_ms() < deadline_ms:
            await self._clock.sleep(LOOK_MS)
        self._settle()
        if self._is_unconfirmed:
            await self._take(self._safe)
        self._safe = None

    @property
    def _is_unconfirmed(self) -> bool:
        return self._store.confirmed_position < self._store.end_position

    def _settle(self) -> None:
        confirmed = self._store.confirmed_position
        while self._pending and self._pending[0].log_end <= confirmed:
            self._safe = self._pending.popleft()

    async def _take(self, safe: DeliveryProgress) -> None:
        log.info("deliveries go on from where the log ended at %d", safe.log_end)
        self._tables.delay_offsets.copy(safe.delays)
        self._pop_again()
        topic = self._revive.topic
        for group, queue_id in self._revive_places():
            offset = safe.revived.get((group, queue_id))
            self._tables.offsets.restore(group, topic, queue_id, offset)
        if safe.timer != self._timer.checkpoint:
            await self._timer.follow(safe.timer)

    def _pop_again(self) -> None:
        """Let messages be popped again that have no confirmed checkpoint: nothing revives them.

        A checkpoint that was stored again, or for another invisible time, has an earlier one.
        """
        offsets, topic = self._tables.offsets, self._revive.topic
        for popped in self._revive.in_flight:
            _, end = self._store.bounds(topic, popped.revive_queue_id)
            if popped.first_offset is None or popped.first_offset < end:
                continue
            progress = offsets.get(popped.group, popped.topic, popped.queue_id)
            if progress is not None and progress > popped.start:
                offsets.commit(popped.group, popped.topic, popped.queue_id, popped.start)

    def _revive_places(self) -> Iterator[tuple[str, int]]:
        for queue_id in self._store.queue_ids(self._revive.topic):
            yield REVIVE_GROUP, queue_id
            yield NOTED_GROUP, queue_id

    def _progress(self) -> DeliveryProgress:
        offsets, topic = self._tables.offsets, self._revive.topic
        return DeliveryProgress(
            log_end=self._store.end_position,
            delays=self._tables.delay_offsets.content(),
            timer=self._timer.checkpoint,
            revived={
                (group, queue_id): offsets.get(group, topic, queue_id)
                for group, queue_id in self._revive_places()
            },
        )
