"""Mirror: copies topics of one cluster into another, and translates the progress of groups.

    source ──pull──▶ QueueCopier, one a queue ──send──▶ target
    every 5 s        topics and queues that are new; ProgressTranslation

A queue that cannot be copied says why, and is tried again; the others go on.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from roquet.admin import groups, topics
from roquet.admin.client import AdminClient
from roquet.admin.mirror import topics as mirror_topics
from roquet.admin.mirror.endpoint import MirrorEndpoint
from roquet.admin.mirror.group_progress import ProgressTranslation
from roquet.admin.mirror.queue_copier import OWN_PREFIX, MirroredQueue, MirrorNames, QueueCopier
from roquet.log_records import logger
from roquet.model.errors import CallError, RoquetError, UsageError
from roquet.model.queue import MessageQueue
from roquet.net.clock import Clock
from roquet.rules.backoff import backoff_ms
from roquet.rules.rate_limit import RateLimit
from roquet.rules.send_retry import is_transient

log = logger(__name__)

PERIOD_MS: Final = 5_000
"""Period in which the progress of groups is translated, and new topics are looked for."""

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

FAULTS: Final = (RoquetError, ValueError)
"""Errors of one queue, topic or group; ValueError: bytes that no rule foresaw."""


class Mirror:
    """Copies the chosen topics; made by `open_mirror`."""

    def __init__(
        self, admins: tuple[AdminClient, AdminClient], ends: tuple[MirrorEndpoint, MirrorEndpoint],
        names: MirrorNames, *, topics: Sequence[str] = (), groups: Sequence[str] = (),
        rate: float | None = None, skip_refused: bool = False,
    ) -> None:  # fmt: skip
        """`topics` and `groups`: patterns like `orders*`; empty for all topics, and for no group.

        `rate`: messages per second at most of all queues together; None for no limit.
        `skip_refused`: leave out messages that the target never takes; else their queues stop.
        """
        self._admins, self._ends, self._names = admins, ends, names
        self._topics, self._groups = topics, groups
        self._clock: Clock = admins[0].clock
        self._limit, self._skip_refused = RateLimit(rate), skip_refused
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
        """The target of each queue; nothing is changed. Faults of topics are noted.

        Raises UsageError if both addresses lead to one cluster.
        """
        first, second = [set((await admin.brokers()).values()) for admin in self._admins]
        for address in sorted(first & second):
            raise UsageError(f"source and target are one cluster: both have the broker {address}")
        mapped: dict[MessageQueue, MessageQueue] = {}
        for topic in await self._chosen_topics():
            with self._noting(topic):
                mapped |= await mirror_topics.plan(*self._admins, topic)
        return mapped

    async def once(self) -> None:
        """Copy what the topics hold now, then translate the progress of the groups."""
        copiers = await self._new_copiers()
        async with asyncio.TaskGroup() as tasks:
            for copier in copiers:
                tasks.create_task(self._keep_copying(copier, is_once=True))
        await self._translate()

    async def follow(self) -> None:
        """Copy for ever."""
        copiers = await self._new_copiers()
        async with asyncio.TaskGroup() as tasks:
            while True:
                for copier in copiers:
                    tasks.create_task(self._keep_copying(copier, is_once=False))
                await self._clock.sleep(PERIOD_MS)
                await self._translate()
                copiers = []
                with self._noting("topics"):
                    copiers = await self._new_copiers()

    async def commit(self) -> None:
        """Commit how far all queues are copied, as far as brokers answer."""
        commits = [copier.commit() for copier in self._copiers.values()]
        await asyncio.gather(*commits, return_exceptions=True)

    async def _chosen_topics(self) -> list[str]:
        found = mirror_topics.chosen(await topics.list_names(self._admins[0]), self._topics)
        if not found:
            wanted = ", ".join(self._topics) or "any"
            raise UsageError(f"the source has no topic {wanted}: `roquet topic ls` lists them")
        return found

    async def _new_copiers(self) -> list[QueueCopier]:
        """Queues that are not copied yet, their topics made in the target."""
        source, target = self._admins
        new: list[QueueCopier] = []
        for topic in await self._chosen_topics():
            with self._noting(topic):
                queues = (await source.known_route(topic)).read_queues(topic)
                known = [self._copiers[queue] for queue in queues if queue in self._copiers]
                if len(known) == len(queues) and not any(one.state.fault for one in known):
                    continue
                mapped = await mirror_topics.prepare(source, target, topic)
                ends = [await self._ends[1].committed(queue) for queue in mapped.values()]
                for pair in mapped.items():
                    if (copier := self._copiers.get(pair[0])) is None:
                        copier = QueueCopier(
                            self._ends, self._names, pair, self._limit, self._clock,
                            skip_refused=self._skip_refused,
                        )  # fmt: skip
                        self._copiers[pair[0]] = copier
                        new.append(copier)
                        copier.is_new = not any(ends)
        return new

    async def _keep_copying(self, copier: QueueCopier, *, is_once: bool) -> None:
        """Copy a queue to its present end, or for ever; its faults are noted, never raised."""
        pauses_ms = backoff_ms(PAUSE_MS, PAUSE_MS_MAX)
        failed_ms = 0
        while True:
            try:
                return await self._copy(copier, is_once=is_once)
            except FAULTS as error:
                now_ms = self._clock.monotonic_ms()
                failed_ms = now_ms if copier.state.fault is None else failed_ms
                if copier.state.fault != str(error):
                    log.warning("%s is not copied now: %s", copier.source, error)
                copier.state.fault = str(error)
                may_pass = isinstance(error, CallError) and is_transient(error)
                if is_once and (not may_pass or now_ms - failed_ms > GIVE_UP_MS):
                    return None
                await self._clock.sleep(next(pauses_ms) if may_pass else STOPPED_PAUSE_MS)

    async def _copy(self, copier: QueueCopier, *, is_once: bool) -> None:
        """Copy a queue up to the end that it has now, or for ever."""
        source, target = self._ends
        await target.lock(copier.target)
        async with self._working:
            await copier.resume()
        end, is_moving = copier.state.source_end, True
        while not is_once or (is_moving and copier.next_offset < end):
            await target.lock(copier.target)
            async with self._working:
                is_moving = await copier.step()
            copier.state.fault = None
            if not (is_moving or is_once):
                await copier.commit()
                await source.records(copier.source, copier.next_offset, 1, WAIT_MS)
        copier.state.fault = None
        await copier.commit()

    async def _translate(self) -> None:
        """Translate the progress of the chosen groups; faults are noted by group."""
        if not self._groups:
            return
        with self._noting("groups"):
            every = await groups.list_names(self._admins[0])
            others = [group for group in every if not group.startswith(OWN_PREFIX)]
            for group in mirror_topics.chosen(others, self._groups):
                with self._noting(group):
                    await self._progress.step(group, list(self._copiers.values()))

    @contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        """Note an error as the fault of a topic or a group, or that it has none; log a new one."""
        before = self.faults.pop(name, None)
        try:
            yield
        except FAULTS as error:
            self.faults[name] = f"{name}: {error}"
            if self.faults[name] != before:
                log.warning("%s", self.faults[name])


async def cluster_name(admin: AdminClient, option: str) -> str:
    """The name of a cluster. Raises UsageError where a name server knows several."""
    found = sorted((await admin.cluster()).cluster_addr_table)
    if len(found) != 1:
        raise UsageError(f"there are clusters {', '.join(found)}: say a name by {option}")
    return found[0]


@asynccontextmanager
async def open_mirror(
    admins: tuple[AdminClient, AdminClient], ends: tuple[MirrorEndpoint, MirrorEndpoint],
    names: MirrorNames, **choice: Any,
) -> AsyncIterator[Mirror]:  # fmt: skip
    """Open a mirror from the first cluster to the second one; `choice` is that of `Mirror`.

    Raises UsageError as `Mirror.plan` does.
    """
    mirror = Mirror(admins, ends, names, **choice)
    await mirror.plan()
    for admin, end in zip(admins, ends, strict=True):
        try:
            await groups.create(admin, end.group, {})
        except RoquetError as error:  # brokers may create it by themselves
            log.info("group %s: %s", end.group, error)
    async with ends[0], ends[1]:
        try:
            yield mirror
        finally:
            await mirror.commit()
