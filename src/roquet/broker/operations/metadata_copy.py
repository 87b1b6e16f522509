"""MetadataCopy: a replica's copies of its master's tables, and of its progress.

    topics  groups  request modes ────────────────────────▶ applied at once
    offsets  delay offsets  timer checkpoint ──▶ waiting ──▶ applied once the own log holds
                                                             what the master's held then

Progress that ran ahead of the log would skip messages after a failover. A position at the master
says nothing of a log that is no part of its own: progress, and deletions of messages, are taken
only while the stream is established, and only from answers that were asked for since then.

A master of ours answers as soon as a table changes, so a topic made a second ago is known here; any
other one is asked at intervals. An item that fails leaves the others alone, and is logged once
until it succeeds again. Nothing of an answer is applied when the broker has another role, or
another master, by then.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Set
from functools import partial
from typing import Final

import msgspec

from roquet.broker.broker import Broker
from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.broker.replication.master_tables import MasterTables
from roquet.broker.replication.role import Role
from roquet.broker.tables.delay_offsets import DelayOffsetTable
from roquet.broker.tables.offsets import SEPARATOR
from roquet.broker.tables.topics import is_system_topic
from roquet.log_records import logger
from roquet.model.errors import (
    CallError,
    ConnectFailed,
    ConnectionLost,
    FieldError,
    StoreError,
    UsageError,
)
from roquet.model.topic import DataVersion
from roquet.net.pool import ChannelPool
from roquet.rules.replication.table_copy import TopicChanges, is_not_older, topic_changes
from roquet.wire.replication.table_editions import TableEditions

log = logger(__name__)

STEP_MS: Final = 50
"""Ms between two steps: together with the master's own pause a change is here within 100 ms."""

IDLE_MS: Final = 1_000
"""Ms between two looks whether a master has become a replica."""

WAIT_MS: Final = 5_000
"""Longest wait in ms for a change at a master of ours."""

LOOK_MS: Final = 20
"""Longest wait in ms while progress waits for the log: then the log is looked at again."""

UNFOLLOWED_MS: Final = 50
"""Longest wait in ms without a stream: then progress is asked for soon after there is one."""

WHOLE_MS: Final = 10_000
"""Ms between two copies of a table from a master that does not report changes. Apache's replica
waits for 60 s with fixed roles, and 10 s with a controller: what it forgets at a failover is worth
some hundred kilobytes in ten seconds."""

SURE_MS: Final = 60_000
"""Ms between two whole copies of a table from a master that does, only to be sure."""

PROGRESS_MS: Final = 1_000
"""Ms between two copies of delay offsets and of the timer checkpoint, of Apache's 3 s for the
latter: both take some hundred bytes, and each second less is one less of repeats."""

METRICS_MS: Final = 10_000
RETRY_MS: Final = 3_000
"""Ms after which a failed item is tried again, and a master whose identity is in doubt is asked."""

PENDING_MAX: Final = 8
"""Answers that wait for the log; further ones are joined to the last."""

TOPICS: Final = "topics"
GROUPS: Final = "groups"
REQUEST_MODES: Final = "request modes"
OFFSETS: Final = "offsets"
DELAY_OFFSETS: Final = "delay offsets"
TIMER: Final = "timer checkpoint"
METRICS: Final = "timer metrics"
IDENTITY: Final = "identity"


NO_EDITIONS: Final = TableEditions(started_ms=0, topics=0, groups=0, offsets=0, request_modes=0)


class PendingOffsets(msgspec.Struct, frozen=True):
    """Offsets that wait for the log to reach a position."""

    log_end: int
    rows: Mapping[str, Mapping[int, int]]
    version: DataVersion | None
    editions: TableEditions | None
    """Editions of the master's tables with these offsets; None where it reports no changes."""


class PendingProgress(msgspec.Struct, frozen=True):
    """Progress of deliveries that waits for the log to reach a position."""

    log_end: int
    apply: Callable[[], Awaitable[object]]


class RoleChanged(Exception):
    """The broker has another role or master: an answer for the former one is not applied."""


class MasterSession:
    """Knowledge of one master, until there is another."""

    def __init__(self, role: Role, master: MasterTables) -> None:
        self.role = role
        self.master = master
        self.is_checked = False
        """Whether it has proved to be a broker of this group."""
        self.reports_changes = True
        """Whether it answers when a table changes; a master is asked so until it proves not to."""
        self.known: TableEditions | None = None
        self._copied: dict[str, TableEditions] = {}
        """Editions that were known before a table was copied last."""
        self.due_ms: dict[str, int] = {}
        """Monotonic ms at which an item is copied again; one that is not here is due."""
        self.offsets: list[PendingOffsets] = []
        self.deliveries: dict[str, PendingProgress] = {}
        """By item."""
        self.following: int | None = None
        """Number of the stream's conversation for which progress is asked."""
        self.applied: TableEditions | None = None
        """Editions up to which the changes of offsets are applied; None: not known."""
        self.missing_since: TableEditions | None = None
        """Editions since which answers were dropped; None: none was, or everything is asked for."""
        self.has_undeleted = False
        """Whether messages of deleted topics wait for a stream."""
        self.topics_version: DataVersion | None = None
        self.groups_version: DataVersion | None = None

    def begin_progress(self, following: int | None) -> None:
        """Drop the answers that wait, and ask again for another conversation of the stream."""
        self.following = following
        self.offsets.clear()
        self.deliveries.clear()
        self.missing_since = self.applied
        for name in (OFFSETS, DELAY_OFFSETS, TIMER):
            self.due_ms.pop(name, None)
        if self.has_undeleted and following is not None:
            self.due_ms.pop(TOPICS, None)

    def drop_offsets(self, topics: Collection[str]) -> None:
        """Drop the offsets of topics from the answers that wait."""
        self.offsets = [
            msgspec.structs.replace(
                answer,
                rows={
                    k: r for k, r in answer.rows.items() if k.partition(SEPARATOR)[0] not in topics
                },
            )
            for answer in self.offsets
        ]

    def note_copied(self, name: str, known: TableEditions | None) -> None:
        """Note that an item was copied when these editions had been known before."""
        if known is not None:
            self._copied[name] = known

    @property
    def copied(self) -> TableEditions | None:
        """The editions of the tables that are certainly copied; None before any is known."""
        known = self.known
        if known is None:
            return None

        def before(name: str) -> TableEditions:
            editions = self._copied.get(name, NO_EDITIONS)
            return editions if editions.started_ms == known.started_ms else NO_EDITIONS

        return msgspec.structs.replace(
            known,
            topics=before(TOPICS).topics,
            groups=before(GROUPS).groups,
            request_modes=before(REQUEST_MODES).request_modes,
        )

    @property
    def whole_ms(self) -> int:
        """Ms between two whole copies of a table."""
        return SURE_MS if self.reports_changes else WHOLE_MS


class MetadataCopy:
    """Copies tables from the master while this broker is a replica."""

    def __init__(self, broker: Broker, pool: ChannelPool) -> None:
        self._stream = broker.replication.stream_client
        self._tables = broker.tables
        self._timer = broker.delivery.timer
        self._store = broker.log.store
        self._role = broker.replication.role
        self._settings = broker.control.settings
        self._deletion = broker.make(TopicDeletion)
        self._pool = pool
        self._clock = broker.control.clock
        self._session: MasterSession | None = None
        self._versions: tuple[DataVersion | None, DataVersion | None] = None, None
        """Of topics and groups, as they were copied last: a master that was started again may have
        lost its tables."""
        self._failing: set[str] = set()
        """Items that have failed since they last succeeded."""
        self._unproven: frozenset[str] = frozenset()

    def interval_ms(self) -> int:
        """Pause before the next step."""
        return IDLE_MS if self._role.current.is_master else STEP_MS

    async def step(self, _now_ms: int = 0) -> None:
        """Copy what is due, then wait for a change where the master reports them."""
        session = self._current_session()
        if session is None:
            return
        try:
            if not session.is_checked:
                await self._item(session, IDENTITY, RETRY_MS, partial(self._check, session))
            if session.is_checked:
                await self._copy(session)
        except RoleChanged:
            return

    def _current_session(self) -> MasterSession | None:
        """The session with the present master; None without one, and at a master."""
        role = self._role.current
        if role.is_master or role.master is None:
            self._session = None
        elif self._session is None or self._session.role != role:
            self._session = session = MasterSession(role, MasterTables(self._pool, role.master))
            session.topics_version, session.groups_version = self._versions
        return self._session

    async def _copy(self, session: MasterSession) -> None:
        """Copy what is due, and what changes until something is due again."""
        await self._copy_due(session)
        if session.known is not None and OFFSETS not in self._failing:
            await self._watch(session)
            await self._copy_due(session)

    async def _copy_due(self, session: MasterSession) -> None:
        if (following := self._following) != session.following:
            session.begin_progress(following)
        for name, interval_ms, work in (
            (TOPICS, None, self._copy_topics),
            (OFFSETS, None, self._copy_missing),
            (DELAY_OFFSETS, PROGRESS_MS, self._ask_delays),
            (TIMER, PROGRESS_MS, self._ask_timer),
            (GROUPS, None, self._copy_groups),
            (REQUEST_MODES, None, self._copy_modes),
            (METRICS, METRICS_MS, self._copy_metrics),
        ):
            due_ms = session.whole_ms if interval_ms is None else interval_ms
            await self._item(session, name, due_ms, partial(work, session))
        await self._apply_progress(session)

    async def _item(
        self,
        session: MasterSession,
        name: str,
        interval_ms: int,
        work: Callable[[], Awaitable[object]],
    ) -> None:
        """Do the work of an item if it is due; its failure is logged and ends here."""
        if session.due_ms.get(name, 0) > (now_ms := self._clock.monotonic_ms()):
            return
        session.due_ms[name] = now_ms + interval_ms
        known = session.known
        if await self._attempt(session, name, work):
            session.note_copied(name, known)
        else:
            session.due_ms[name] = self._clock.monotonic_ms() + RETRY_MS

    async def _attempt(
        self, session: MasterSession, name: str, work: Callable[[], Awaitable[object]]
    ) -> bool:
        """Do the work of an item; whether it succeeded."""
        try:
            await work()
        except (CallError, FieldError, StoreError, UsageError) as error:
            self._check_role(session)
            if isinstance(error, ConnectFailed | ConnectionLost):
                session.is_checked = False  # another broker may answer there
            if name not in self._failing:
                self._failing.add(name)
                log.warning("no copy of the %s of %s: %s", name, session.master.address, error)
            return False
        self._failing.discard(name)
        return True

    def _check_role(self, session: MasterSession) -> None:
        """RoleChanged when an answer comes from a master that is none any more."""
        if self._role.current != session.role:
            raise RoleChanged

    async def _check(self, session: MasterSession) -> None:
        """Check that the master is one of this group, and not this broker itself."""
        identity = await session.master.identity()
        self._check_role(session)
        if fault := identity.fault(self._settings.config, session.role.broker_id):
            raise FieldError(fault)
        session.is_checked = True

    async def _copy_topics(self, session: MasterSession) -> None:
        seen_end = await session.master.log_end()
        master = await session.master.topics(seen_end)
        self._check_role(session)
        topics, config = self._tables.topics, self._settings.config
        follows = is_not_older(master.version, session.topics_version)
        changes = topic_changes(
            {config.topic_name: config for config in topics},
            master,
            deleted_before=self._store.deleted_before,
            has_messages=self._has_messages,
            is_system=lambda topic: is_system_topic(topic, config),
            seen_end=seen_end if follows else None,
        )
        self._report_unproven(changes)
        self._delete_topics(session, changes, master.configs.keys())
        topics.copy(changes.changed, master.ids, master.version, self._clock.now_ms())
        if follows:
            session.topics_version = master.version
            self._versions = session.topics_version, session.groups_version
        await topics.saved()

    def _delete_topics(
        self, session: MasterSession, changes: TopicChanges, present: Set[str]
    ) -> None:
        """Delete topics as the master did; records only while the log is a part of its log."""
        deleted, gone = changes.deleted, {*changes.dropped, *changes.deleted} - present
        follows = self._follows(session)
        session.has_undeleted = bool(deleted) and not follows
        if not follows:
            deleted, gone = {}, {topic for topic in gone if self._is_empty(topic)}
        if deleted or gone:
            self._deletion.delete_copied(deleted, frozenset(gone))
            session.drop_offsets({*deleted, *gone})
            session.applied = session.missing_since = None
            session.due_ms.pop(OFFSETS, None)  # progress in a topic that was made anew

    def _is_empty(self, topic: str) -> bool:
        return self._tables.topics.get(topic) is not None and not self._has_messages(topic)

    def _has_messages(self, topic: str) -> bool:
        """Whether a topic has messages here that can be read."""
        bounds = (self._store.bounds(topic, number) for number in self._store.queue_ids(topic))
        return any(first < end for first, end in bounds)

    def _report_unproven(self, changes: TopicChanges) -> None:
        """Log once which topics stay although the master lacks them."""
        unproven = frozenset(changes.unproven)
        if new := unproven - self._unproven:
            log.error(
                "the master does not have %d topics of which there are messages here, as %s, and"
                " nothing shows that they were deleted: they stay",
                len(new),
                min(new),
            )
        self._unproven = unproven

    async def _copy_groups(self, session: MasterSession) -> None:
        table = await session.master.groups()
        self._check_role(session)
        follows = is_not_older(table.data_version, session.groups_version)
        groups = self._tables.groups
        groups.copy(table, only_more=not follows)
        if follows:
            session.groups_version = table.data_version
            self._versions = session.topics_version, session.groups_version
        await groups.saved()

    async def _copy_modes(self, session: MasterSession) -> None:
        table = await session.master.request_modes()
        self._check_role(session)
        self._tables.request_modes.copy(table)
        await self._tables.request_modes.saved()

    async def _copy_metrics(self, session: MasterSession) -> None:
        table = await session.master.timer_metrics()
        self._check_role(session)
        self._timer.context.metrics.copy(table)
        await self._timer.context.metrics.saved()

    @property
    def _following(self) -> int | None:
        """Number of the stream's conversation with this master; None without one.

        By it the own log is known to be a part of the master's.
        """
        return self._stream.following

    def _follows(self, session: MasterSession) -> bool:
        """Whether the stream is the one for which the session asks, and established."""
        return session.following is not None and session.following == self._following

    async def _watch(self, session: MasterSession) -> None:
        """Wait until a table changes at the master, or an item is due."""
        now_ms = self._clock.monotonic_ms()
        next_ms = min(due_ms for name, due_ms in session.due_ms.items() if name != IDENTITY)
        wait_ms = min(WAIT_MS, next_ms - now_ms)
        if session.offsets or session.deliveries:
            wait_ms = min(wait_ms, LOOK_MS)
        if session.following is None:
            wait_ms = min(wait_ms, UNFOLLOWED_MS)
        if wait_ms <= 0:
            return
        due_ms = session.due_ms.pop(OFFSETS)
        work = partial(self._copy_offsets, session, session.known, wait_ms)
        await self._item(session, OFFSETS, SURE_MS, work)
        if OFFSETS not in self._failing:  # the next whole copy is as far away as before
            session.due_ms[OFFSETS] = due_ms

    async def _copy_missing(self, session: MasterSession) -> None:
        """Copy the progress of groups, as far as it is not applied already."""
        await self._copy_offsets(session, session.missing_since, 0)

    async def _copy_offsets(
        self, session: MasterSession, known: TableEditions | None, wait_ms: int
    ) -> None:
        answer = await session.master.offsets(known, wait_ms, session.copied)
        log_end = answer.log_end
        if log_end is None:
            log_end = await session.master.log_end()
        self._check_role(session)
        session.reports_changes = answer.editions is not None
        if not session.reports_changes:
            latest_ms = self._clock.monotonic_ms() + WHOLE_MS
            session.due_ms = {n: min(due_ms, latest_ms) for n, due_ms in session.due_ms.items()}
        self._mark_changed(session, answer.editions)
        session.known = answer.editions
        if not self._follows(session):
            return
        session.missing_since = None
        if answer.rows:
            more = PendingOffsets(log_end, answer.rows, answer.version, answer.editions)
            _join(session.offsets, more)

    def _mark_changed(self, session: MasterSession, now: TableEditions | None) -> None:
        """Make the tables due that have changed since the editions that are known."""
        known = session.known
        if now is None:
            return
        if known is None:
            if TOPICS not in self._failing:  # they were copied before, and may have changed since
                session.due_ms[TOPICS] = 0
            return
        is_other = now.started_ms != known.started_ms
        changed = {
            TOPICS: now.topics != known.topics,
            GROUPS: now.groups != known.groups,
            REQUEST_MODES: now.request_modes != known.request_modes,
        }
        for name, has_changed in changed.items():
            if (is_other or has_changed) and name not in self._failing:
                session.due_ms.pop(name, None)

    async def _ask_delays(self, session: MasterSession) -> None:
        """Ask for the progress of delay levels, unless an earlier answer waits for the log."""
        if self._follows(session) and DELAY_OFFSETS not in session.deliveries:
            table = await session.master.delay_offsets()
            await self._wait_for_log(session, DELAY_OFFSETS, partial(self._take_delays, table))

    async def _ask_timer(self, session: MasterSession) -> None:
        """Ask for the progress of the timer, unless an earlier answer waits for the log."""
        if self._follows(session) and TIMER not in session.deliveries:
            checkpoint = await session.master.timer_checkpoint()
            await self._wait_for_log(session, TIMER, partial(self._timer.follow, checkpoint))

    async def _wait_for_log(
        self, session: MasterSession, name: str, apply: Callable[[], Awaitable[object]]
    ) -> None:
        """Let progress wait until the own log holds what the master's holds now."""
        log_end = await session.master.log_end()
        self._check_role(session)
        if self._follows(session):
            session.deliveries[name] = PendingProgress(log_end, apply)

    async def _take_delays(self, table: DelayOffsetTable) -> None:
        self._tables.delay_offsets.copy(table)
        await self._tables.delay_offsets.saved(self._store.flush_log)

    async def _apply_progress(self, session: MasterSession) -> None:
        """Apply the progress that the own log has reached."""
        self._check_role(session)
        if not self._follows(session):
            return
        log_end = self._store.raw.dispatched
        offsets = self._tables.offsets
        while session.offsets and session.offsets[0].log_end <= log_end:
            first = session.offsets.pop(0)
            offsets.copy(first.rows, first.version)
            session.applied = first.editions
        for name, progress in list(session.deliveries.items()):
            if progress.log_end <= log_end and self._follows(session):
                del session.deliveries[name]
                await self._attempt(session, name, progress.apply)
                self._check_role(session)


def _join(pending: list[PendingOffsets], more: PendingOffsets) -> None:
    """Add an answer to those that wait; the oldest keeps its place in the log."""
    if len(pending) < PENDING_MAX:
        pending.append(more)
        return
    last = pending[-1]
    pending[-1] = PendingOffsets(
        max(last.log_end, more.log_end), {**last.rows, **more.rows}, more.version, more.editions
    )
