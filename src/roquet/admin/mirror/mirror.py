"""Mirror: copies topics of one cluster into another, and translates the progress of groups.

    source ──pull──▶ QueueCopier, one a queue ──send──▶ target
                     ProgressTranslation, every 5 s
                     topics and queues that are new, every 10 s

A queue that cannot be copied says why, and is tried again; the others go on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec

from roquet.admin import groups
from roquet.admin.client import AdminClient
from roquet.admin.mirror import topics as mirror_topics
from roquet.admin.mirror.endpoint import MirrorEndpoint
from roquet.admin.mirror.group_progress import ProgressTranslation, chosen_groups
from roquet.admin.mirror.queue_copier import MirroredQueue, MirrorNames, Pace, QueueCopier
from roquet.admin.topics import list_names
from roquet.log_records import logger
from roquet.model.errors import CallError, RoquetError, UsageError
from roquet.model.names import check_group
from roquet.model.queue import MessageQueue
from roquet.net.clock import Clock
from roquet.rules.backoff import backoff_ms
from roquet.rules.send_retry import is_transient

log = logger(__name__)

SCAN_MS: Final = 10_000
"""Period in which new topics and queues are looked for."""

PROGRESS_MS: Final = 5_000
"""Period in which the progress of groups is translated."""

WAIT_MS: Final = 10_000
"""How long a pull waits for a new message."""

PAUSE_MS: Final = 200
PAUSE_MS_MAX: Final = 5_000
"""First and longest pause after a failure that may pass."""

STOPPED_PAUSE_MS: Final = 30_000
"""Pause before a queue is tried again whose fault somebody has to mend."""

GIVE_UP_MS: Final = 90_000
"""How long `once` goes on with failures that may pass: longer than the lock of a dead mirror."""

CONCURRENT_QUEUES: Final = 16
"""Queues whose messages are in memory at a time."""

LOCKED: Final = (
    "another mirror copies this queue, or one that ended less than a minute ago: stop it, or wait"
)


class MirrorChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The topics and groups to mirror, as patterns like `orders*`."""

    topics: Sequence[str] = ()
    """Empty for all topics."""
    groups: Sequence[str] = ()
    """Empty for no group; `*` for all."""


class Mirror:
    """Copies the chosen topics; made by `open_mirror`."""

    def __init__(
        self, admins: tuple[AdminClient, AdminClient], ends: tuple[MirrorEndpoint, MirrorEndpoint],
        names: MirrorNames, choice: MirrorChoice, rate: float | None,
    ) -> None:  # fmt: skip
        self._source, self._target = admins
        self._ends, self._names, self._choice = ends, names, choice
        self._clock: Clock = admins[0].clock
        self._pace = Pace(rate, self._clock)
        self._copiers: dict[MessageQueue, QueueCopier] = {}
        self._working = asyncio.Semaphore(CONCURRENT_QUEUES)
        self._progress = ProgressTranslation(admins, ends, names)
        self.faults: dict[str, str] = {}
        """Faults of topics and groups by name."""

    @property
    def queues(self) -> list[MirroredQueue]:
        """How far each queue is copied."""
        return [self._copiers[queue].state for queue in sorted(self._copiers)]

    async def plan(self) -> dict[MessageQueue, MessageQueue]:
        """The target of each queue; nothing is changed. Faults of topics are noted."""
        mapped: dict[MessageQueue, MessageQueue] = {}
        for topic in await self._topics():
            try:
                mapped |= await mirror_topics.plan(self._source, self._target, topic)
            except RoquetError as error:
                self._note(topic, str(error))
        return mapped

    async def once(self) -> None:
        """Copy what the topics hold now, then translate the progress of the groups."""
        copiers = await self._new_copiers()
        async with asyncio.TaskGroup() as group:
            for copier in copiers:
                group.create_task(self._keep_copying(copier, is_once=True))
        await self._translate()

    async def follow(self) -> None:
        """Copy for ever."""
        copiers = await self._new_copiers()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._translate_forever())
            while True:
                for copier in copiers:
                    group.create_task(self._keep_copying(copier, is_once=False))
                await self._clock.sleep(SCAN_MS)
                try:
                    copiers = await self._new_copiers()
                except RoquetError as error:
                    copiers = []
                    log.warning("new topics are looked for later: %s", error)

    async def commit(self) -> None:
        """Commit how far all queues are copied, as far as brokers answer."""
        commits = [copier.commit() for copier in self._copiers.values()]
        await asyncio.gather(*commits, return_exceptions=True)

    async def _topics(self) -> list[str]:
        topics = mirror_topics.chosen(await list_names(self._source), self._choice.topics)
        if not topics:
            wanted = ", ".join(self._choice.topics) or "any"
            raise UsageError(f"the source has no topic {wanted}: `roquet topic ls` lists them")
        return topics

    async def _new_copiers(self) -> list[QueueCopier]:
        """Queues that are not copied yet, their topics made in the target."""
        new: list[QueueCopier] = []
        for topic in await self._topics():
            try:
                queues = (await self._source.known_route(topic)).read_queues(topic)
                mapped: mirror_topics.QueueMap = {}
                if not self._copiers.keys() >= set(queues):
                    mapped = await mirror_topics.prepare(self._source, self._target, topic)
            except RoquetError as error:
                self._note(topic, str(error))
                continue
            self._note(topic, None)
            for pair in mapped.items():
                if pair[0] not in self._copiers:
                    copier = QueueCopier(self._ends, self._names, pair, self._pace, self._clock)
                    self._copiers[pair[0]] = copier
                    new.append(copier)
        return new

    async def _keep_copying(self, copier: QueueCopier, *, is_once: bool) -> None:
        """Copy a queue to its present end, or for ever; its faults are noted, never raised."""
        until: int | None = None
        pauses_ms = backoff_ms(PAUSE_MS, PAUSE_MS_MAX)
        began_ms = self._clock.monotonic_ms()
        while True:
            try:
                if not await self._ends[1].lock(copier.target):
                    raise CallError(LOCKED, definite=True)
                async with self._working:
                    await copier.resume()
                until = copier.state.source_end if is_once and until is None else until
                return await self._copy(copier, until)
            except (RoquetError, ValueError) as error:  # ValueError: bytes that no rule foresaw
                if copier.state.fault != str(error):
                    log.warning("%s is not copied now: %s", copier.source, error)
                copier.state.fault = str(error)
                may_pass = isinstance(error, CallError) and is_transient(error)
                waited_ms = self._clock.monotonic_ms() - began_ms
                if is_once and (not may_pass or waited_ms > GIVE_UP_MS):
                    return None
                await self._clock.sleep(next(pauses_ms) if may_pass else STOPPED_PAUSE_MS)

    async def _copy(self, copier: QueueCopier, until: int | None) -> None:
        """Copy a queue up to the source offset `until`; for ever without one."""
        while True:
            offset = copier.state.next_offset or 0
            if until is not None and offset >= until:
                copier.state.fault = None
                return await copier.commit()
            if not await self._ends[1].lock(copier.target):
                raise CallError(LOCKED, definite=True)
            async with self._working:
                is_moving = await copier.step()
            copier.state.fault = None
            if not is_moving and until is None:
                await copier.commit()
                await self._ends[0].records(copier.source, offset, 1, WAIT_MS)

    async def _translate_forever(self) -> None:
        while True:
            await self._clock.sleep(PROGRESS_MS)
            await self._translate()

    async def _translate(self) -> None:
        """Translate the progress of the chosen groups; faults are noted by group."""
        if not self._choice.groups:
            return None
        try:
            every = await chosen_groups(self._source)
        except RoquetError as error:
            return self._note("groups", str(error))
        self._note("groups", None)
        for group in mirror_topics.chosen(every, self._choice.groups):
            copiers = list(self._copiers.values())
            try:
                fault = await self._progress.step(group, copiers)
            except RoquetError as error:
                fault = f"group {group}: {error}"
            self._note(group, fault)
        return None

    def _note(self, name: str, fault: str | None) -> None:
        """Note the fault of a topic or a group, or that it has none, and log a new one."""
        if fault is None:
            self.faults.pop(name, None)
            return
        if self.faults.get(name) != fault:
            log.warning("%s: %s", name, fault)
        self.faults[name] = fault


async def cluster_name(admin: AdminClient, option: str) -> str:
    """The name of a cluster. Raises UsageError where a name server knows several."""
    found = sorted((await admin.cluster()).cluster_addr_table)
    if len(found) != 1:
        raise UsageError(f"there are clusters {', '.join(found)}: say a name by {option}")
    return found[0]


@asynccontextmanager
async def open_mirror(
    admins: tuple[AdminClient, AdminClient], names: MirrorNames,
    endpoints: tuple[Callable[[str], MirrorEndpoint], Callable[[str], MirrorEndpoint]],
    choice: MirrorChoice, *, rate: float | None = None,
) -> AsyncIterator[Mirror]:  # fmt: skip
    """Open a mirror from the first cluster to the second one.

    `endpoints` make the client of each cluster for the name of a group. Raises UsageError if both
    addresses lead to one cluster.
    """
    source, target = admins
    first, second = await source.brokers(), await target.brokers()
    if shared := sorted(set(first.values()) & set(second.values())):
        raise UsageError(f"source and target are one cluster: both have the broker at {shared[0]}")
    for admin, group in (source, names.source_group), (target, names.target_group):
        try:
            await groups.create(admin, check_group(group), {})
        except RoquetError as error:  # brokers may create it by themselves
            log.info("group %s: %s", group, error)
    async with AsyncExitStack() as stack:
        ends = (
            await stack.enter_async_context(endpoints[0](names.source_group)),
            await stack.enter_async_context(endpoints[1](names.target_group)),
        )
        mirror = Mirror(admins, ends, names, choice, rate)
        try:
            yield mirror
        finally:
            await mirror.commit()
