"""Sampler: asks the whole cluster at intervals, and keeps what pages show over time."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Final

import msgspec

from roquet.admin import brokers, groups, replicas, topics
from roquet.admin.brokers import BrokerStatus
from roquet.admin.client import AdminClient, failures_text
from roquet.admin.group_info import GroupInfo
from roquet.admin.replicas import ReplicaStatus
from roquet.dashboard.sampling.history import ClusterHistory, ClusterTotals, GroupHistory
from roquet.dashboard.sampling.role_changes import ClusterEvent, role_changes
from roquet.dashboard.visitor_rights import known_access
from roquet.log_records import logger
from roquet.model.access import AccessTables
from roquet.model.errors import RoquetError
from roquet.model.topic import TopicConfig, TopicTable
from roquet.net.clock import Clock, boottime
from roquet.wire.calls.admin.stats import GetTopicStats, TopicStats
from roquet.wire.calls.admin.topic import GetTopics
from roquet.wire.fastjson import codec

TYPE_ATTRIBUTE: Final = "message.type"


class TopicSample(msgspec.Struct, frozen=True, kw_only=True):
    """A topic, over all brokers that have it."""

    name: str
    brokers: list[str]
    read_queues: int
    write_queues: int
    message_type: str
    """NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY or another one that the topic was made with."""
    messages: int | None
    """Messages that are stored; None when no broker tells."""
    end: int | None
    """Sum of the ends of its queues: grows with each message; None when a broker is silent."""
    stored_ms: int | None
    """Time of the newest message; None without any."""
    at_ms: int
    in_per_s: float | None = None
    """Messages a second since the sample before; None for the first one."""


async def sample_topics(
    admin: AdminClient,
    brokers: Mapping[str, str],
    names: Iterable[str],
    before: Mapping[str, TopicSample],
    clock: "SampleClock",
) -> AsyncIterator[TopicSample]:
    """Sizes of topics, one after another; `before` are those of the last time, for rates.

    Raises RoquetError behind the last topic when a broker did not tell all of its part.
    """
    tables, failed = await admin.ask_each(brokers, GetTopics())
    configs: dict[str, dict[str, TopicConfig]] = {}
    for broker, reply in tables.items():
        for name, config in codec.loads(reply.body, TopicTable).topic_config_table.items():
            configs.setdefault(name, {})[broker] = config
    for name in names:
        known = configs.get(name, {})
        places = {broker: brokers[broker] for broker in known}
        answers, silent = await admin.ask_each(places, GetTopicStats(topic=name))
        failed |= silent
        stats = [codec.loads(reply.body, TopicStats) for reply in answers.values()]
        sample = _sample(name, known, stats, clock.now_ms())
        yield _with_rate(sample, before.get(name))
    if failed:
        raise RoquetError(f"topics are not known whole: {failures_text(failed)}")


def _sample(
    name: str, known: Mapping[str, TopicConfig], stats: Sequence[TopicStats], now_ms: int
) -> TopicSample:
    queues = [queue for one in stats for queue in one.offset_table.values()]
    types = {config.attributes.get(TYPE_ATTRIBUTE, "NORMAL") for config in known.values()}
    stored = sum(queue.max_offset - queue.min_offset for queue in queues)
    return TopicSample(
        name=name,
        brokers=sorted(known),
        read_queues=sum(config.read_queue_nums for config in known.values()),
        write_queues=sum(config.write_queue_nums for config in known.values()),
        message_type=", ".join(sorted(types)) or "NORMAL",
        messages=stored if stats else None,
        end=sum(q.max_offset for q in queues) if len(stats) == len(known) else None,
        stored_ms=max((queue.last_update_timestamp for queue in queues), default=0) or None,
        at_ms=now_ms,
    )


def _with_rate(sample: TopicSample, before: TopicSample | None) -> TopicSample:
    """The sample with its rate.

    Without one where a broker is or was silent, or its queues begin anew: a topic that was deleted
    and made again, a broker without its disk.
    """
    if before is None or before.brokers != sample.brokers:
        return sample
    if sample.end is None or before.end is None or sample.end < before.end:
        return sample
    elapsed_ms = sample.at_ms - before.at_ms
    if elapsed_ms <= 0:
        return sample
    rate = (sample.end - before.end) * 1000 / elapsed_ms
    return msgspec.structs.replace(sample, in_per_s=rate)


log = logger(__name__)

PAUSE_FACTOR: Final = 9
"""The pause after a sample is as many times as long as the sample: a tenth of the time at most
goes into sampling."""

GROUPS_MAX: Final = 5_000
"""Groups whose samples are kept over time; of more only the newest sample."""

EVENTS_MAX: Final = 100
"""Changes of roles that are kept, the newest."""

CLOCK_SET_MS: Final = 1_000
"""A smaller step of the clock is none."""


class ClusterSample(msgspec.Struct, frozen=True, kw_only=True):
    """The whole cluster at one time."""

    at_ms: int
    took_ms: int
    brokers: list[BrokerStatus]
    topics: Mapping[str, TopicSample]
    groups: Mapping[str, GroupInfo]
    replicas: Sequence[ReplicaStatus] = ()
    replica_problems: Sequence[str] = ()
    """Sentences about replicas that are out of sync, and masters that are away."""
    problems: Sequence[str] = ()
    """Errors of parts that are missing, or not whole."""
    access: AccessTables | None = None
    """Users and policies, without passwords; None where they are not known, or nobody logs in."""


class SampleClock:
    """The time of samples: it advances evenly while a sample is made, however the clock is set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._boottime_ms = boottime(clock)
        self._ahead_ms = clock.now_ms() - self._boottime_ms()

    def now_ms(self) -> int:
        """Time in ms since the epoch."""
        return self._boottime_ms() + self._ahead_ms

    def adjust(self) -> int:
        """Take over the clock of the machine; returns by how many ms it was set, 0 for not."""
        ahead_ms = self._clock.now_ms() - self._boottime_ms()
        jumped_ms = ahead_ms - self._ahead_ms
        self._ahead_ms = ahead_ms
        return jumped_ms if abs(jumped_ms) >= CLOCK_SET_MS else 0


class Sampler:
    """Samples of a cluster in memory; `run` makes them."""

    def __init__(self, admin: AdminClient, *, period_ms: int, with_access: bool = False) -> None:
        self._admin = admin
        self._with_access = with_access
        self._period_ms = period_ms
        self._first = asyncio.Event()
        self.latest: ClusterSample | None = None
        """The newest sample; None before the first one."""
        self.totals = ClusterHistory()
        self.events: deque[ClusterEvent] = deque(maxlen=EVENTS_MAX)
        """Changes of roles, the newest first."""
        self._clock = SampleClock(admin.clock)
        self._replicas: Sequence[ReplicaStatus] = ()
        """The newest that are known."""
        self._groups: dict[str, GroupHistory] = {}

    async def run(self) -> None:
        """Make samples until cancelled; one that fails does not end it."""
        clock = self._admin.clock
        while True:
            started_ms = clock.monotonic_ms()
            try:
                await self.step()
            except Exception:
                log.exception("the cluster was not sampled")
            took_ms = clock.monotonic_ms() - started_ms
            await clock.sleep(max(self._period_ms, PAUSE_FACTOR * took_ms))

    async def wait(self, timeout_ms: int) -> ClusterSample | None:
        """The newest sample; waits for the first one, and is None when that takes longer."""
        if self.latest is None:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._first.wait()
            except TimeoutError:
                return None
        return self.latest

    def history(self, group: str) -> GroupHistory:
        """Samples of a group over time; empty ones for a group without any."""
        return self._groups.get(group) or GroupHistory()

    async def step(self) -> ClusterSample:
        """Ask the cluster once, and add what it says."""
        if set_by_ms := self._clock.adjust():
            self._shift(set_by_ms)
        started_ms, before = self._clock.now_ms(), self.latest
        parts = _Parts(self._admin, self._clock)
        await parts.collect(before.topics if before else {}, self._add_group)
        now_ms = self._clock.now_ms()
        sample = ClusterSample(
            at_ms=now_ms,
            took_ms=now_ms - started_ms,
            brokers=parts.brokers,
            topics=parts.topics,
            groups=parts.groups,
            replicas=parts.replicas,
            replica_problems=parts.replica_problems,
            problems=parts.problems,
            access=await known_access(self._admin) if self._with_access else None,
        )
        if parts.problems:
            log.warning("the cluster was not sampled whole: %s", "; ".join(parts.problems))
        self._remember(sample)
        self.latest = sample
        self._first.set()
        return sample

    def _remember(self, sample: ClusterSample) -> None:
        rates = {topic.name: topic.in_per_s for topic in sample.topics.values()}
        self.totals.add(sample.at_ms, cluster_totals(sample), rates)
        if sample.replicas:
            for event in role_changes(self._replicas, sample.replicas, sample.at_ms):
                self.events.appendleft(event)
            self._replicas = sample.replicas
        if not sample.problems:
            self.totals.forget_topics(sample.topics)
            for name in self._groups.keys() - sample.groups.keys():
                del self._groups[name]

    def _add_group(self, group: GroupInfo) -> None:
        if group.name in self._groups or len(self._groups) < GROUPS_MAX:
            history = self._groups.setdefault(group.name, GroupHistory())
            history.add(group, self._clock.now_ms())

    def _shift(self, ms: int) -> None:
        """Move all that is remembered after the clock was set: its age stays right."""
        self.totals.shift(ms)
        for history in self._groups.values():
            history.shift(ms)
        self.events = deque(
            (msgspec.structs.replace(one, at_ms=one.at_ms + ms) for one in self.events), EVENTS_MAX
        )
        if self.latest is not None:
            topics = {
                name: msgspec.structs.replace(topic, at_ms=topic.at_ms + ms)
                for name, topic in self.latest.topics.items()
            }
            at_ms = self.latest.at_ms + ms
            self.latest = msgspec.structs.replace(self.latest, at_ms=at_ms, topics=topics)


class _Parts:
    """The parts of one sample; an error of one part is noted, and the others are asked for."""

    def __init__(self, admin: AdminClient, clock: SampleClock) -> None:
        self._admin = admin
        self._clock = clock
        self.brokers: list[BrokerStatus] = []
        self.topics: dict[str, TopicSample] = {}
        self.groups: dict[str, GroupInfo] = {}
        self.replicas: list[ReplicaStatus] = []
        self.replica_problems: list[str] = []
        self.problems: list[str] = []

    async def collect(
        self, before: Mapping[str, TopicSample], add_group: Callable[[GroupInfo], None]
    ) -> None:
        """Ask for all parts; `before` are the topics of the last sample."""
        for collect in (
            self._brokers,
            self._replicas,
            partial(self._groups, add_group),
            partial(self._topics, before),
        ):
            try:
                await collect()
            except RoquetError as error:
                if str(error) not in self.problems:  # one for all while name servers are away
                    self.problems.append(str(error))

    async def _brokers(self) -> None:
        self.brokers = await brokers.statuses(self._admin)

    async def _replicas(self) -> None:
        self.replicas = known = await replicas.statuses(self._admin)
        # Those that do not answer are among the brokers.
        silent = {one.address for one in self.brokers if one.fault is not None}
        told = [one for one in known if one.address not in silent]
        self.replica_problems = replicas.problems(told)

    async def _groups(self, add_group: Callable[[GroupInfo], None]) -> None:
        async for group in groups.show_each(self._admin):
            self.groups[group.name] = group
            add_group(group)

    async def _topics(self, before: Mapping[str, TopicSample]) -> None:
        addresses = await self._admin.brokers()
        names = await topics.list_names(self._admin)
        async for topic in sample_topics(self._admin, addresses, names, before, self._clock):
            self.topics[topic.name] = topic


def cluster_totals(sample: ClusterSample) -> ClusterTotals:
    """Sums of a sample; the lag is None where parts of the cluster are missing."""
    brokers, groups = sample.brokers, sample.groups.values()
    return ClusterTotals(
        in_per_s=known_sum(rate_of(one.puts_per_s) for one in brokers) if brokers else None,
        out_per_s=known_sum(rate_of(one.gets_per_s) for one in brokers) if brokers else None,
        lag=known_sum(group.lag for group in groups) if not sample.problems else None,
    )


def known_sum(counts: Iterable[float | None]) -> float | None:
    """The sum of what is known; None where nothing is, of one part at least."""
    found = [*counts]
    known = [count for count in found if count is not None]
    return sum(known) if known or not found else None


def rate_of(text: str) -> float | None:
    """The first of a broker's three rates, that of the last ten seconds; None if unreadable."""
    try:
        rate = float(text.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return None
    return rate if rate >= 0 and isfinite(rate) else None
