"""Sampler: asks the whole cluster at intervals, and keeps what pages show over time."""

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from roquet.admin import brokers, groups, replicas, topics
from roquet.admin.brokers import BrokerStatus
from roquet.admin.client import AdminClient, failures_text
from roquet.admin.group_info import GroupInfo
from roquet.dashboard.sampling.history import SAMPLES_MAX, GroupHistory
from roquet.dashboard.visitor_rights import known_access
from roquet.log_records import logger
from roquet.model.access import AccessTables
from roquet.model.errors import RoquetError
from roquet.model.topic import TopicConfig, TopicTable
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
    """NORMAL, FIFO, DELAY, TRANSACTION or another one that the topic was made with."""
    messages: int | None
    """Messages that are stored; None when no broker tells."""
    end: int
    """Sum of the ends of its queues: grows with each message."""
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
        sample = _sample(name, known, stats, admin.clock.now_ms())
        yield _with_rate(sample, before.get(name), is_whole=not silent)
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
        end=sum(queue.max_offset for queue in queues),
        stored_ms=max((queue.last_update_timestamp for queue in queues), default=0) or None,
        at_ms=now_ms,
    )


def _with_rate(sample: TopicSample, before: TopicSample | None, *, is_whole: bool) -> TopicSample:
    """The sample with its rate; without one where a broker is silent or the clock was set."""
    if before is None or not is_whole or before.brokers != sample.brokers:
        return sample
    elapsed_ms, grown = sample.at_ms - before.at_ms, sample.end - before.end
    if elapsed_ms <= 0 or grown < 0:
        return sample
    return msgspec.structs.replace(sample, in_per_s=grown * 1000 / elapsed_ms)


log = logger(__name__)

PAUSE_FACTOR: Final = 9
"""The pause after a sample is as many times as long as the sample: a tenth of the time at most
goes into sampling."""

GROUPS_MAX: Final = 5_000
"""Groups whose samples are kept over time; of more only the newest sample."""


class ClusterSample(msgspec.Struct, frozen=True, kw_only=True):
    """The whole cluster at one time."""

    at_ms: int
    took_ms: int
    brokers: list[BrokerStatus]
    topics: Mapping[str, TopicSample]
    groups: Mapping[str, GroupInfo]
    replica_problems: Sequence[str] = ()
    """Sentences about replicas that are out of sync, and masters that are away."""
    problems: Sequence[str] = ()
    """Errors of parts that are missing, or not whole."""
    access: AccessTables | None = None
    """Users and policies, without passwords; None where they are not known, or nobody logs in."""


class RateHistory:
    """Messages in and out a second and total lag over time, the oldest first."""

    def __init__(self) -> None:
        self.times: array[int] = array("q")
        self.ins: array[float] = array("d")
        self.outs: array[float] = array("d")
        self.lags: array[int] = array("q")

    def add(self, sample: ClusterSample) -> None:
        """Add the sums of a sample."""
        self.times.append(sample.at_ms)
        self.ins.append(sum(rate_of(one.puts_per_s) or 0 for one in sample.brokers))
        self.outs.append(sum(rate_of(one.gets_per_s) or 0 for one in sample.brokers))
        self.lags.append(sum(group.lag or 0 for group in sample.groups.values()))
        for values in (self.times, self.ins, self.outs, self.lags):
            del values[: max(len(values) - SAMPLES_MAX, 0)]


class Sampler:
    """Samples of a cluster in memory; `run` makes them."""

    def __init__(self, admin: AdminClient, *, period_ms: int, with_access: bool = False) -> None:
        self._admin = admin
        self._with_access = with_access
        self._period_ms = period_ms
        self._first = asyncio.Event()
        self.latest: ClusterSample | None = None
        """The newest sample; None before the first one."""
        self.rates = RateHistory()
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
        clock = self._admin.clock
        started_ms, before = clock.monotonic_ms(), self.latest
        parts = _Parts(self._admin)
        await parts.collect(before.topics if before else {}, self._add_group)
        sample = ClusterSample(
            at_ms=clock.now_ms(),
            took_ms=clock.monotonic_ms() - started_ms,
            brokers=parts.brokers,
            topics=parts.topics,
            groups=parts.groups,
            replica_problems=parts.replica_problems,
            problems=parts.problems,
            access=await known_access(self._admin) if self._with_access else None,
        )
        if parts.problems:
            log.warning("the cluster was not sampled whole: %s", "; ".join(parts.problems))
        if parts.brokers:
            self.rates.add(sample)
        if not parts.problems:
            for name in self._groups.keys() - parts.groups.keys():
                del self._groups[name]
        self.latest = sample
        self._first.set()
        return sample

    def _add_group(self, group: GroupInfo) -> None:
        if group.name in self._groups or len(self._groups) < GROUPS_MAX:
            history = self._groups.setdefault(group.name, GroupHistory())
            history.add(group, self._admin.clock.now_ms())


class _Parts:
    """The parts of one sample; an error of one part is noted, and the others are asked for."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self.brokers: list[BrokerStatus] = []
        self.topics: dict[str, TopicSample] = {}
        self.groups: dict[str, GroupInfo] = {}
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
        known = await replicas.statuses(self._admin)
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
        async for topic in sample_topics(self._admin, addresses, names, before):
            self.topics[topic.name] = topic


def rate_of(text: str) -> float | None:
    """The first of a broker's three rates, that of the last ten seconds; None if unreadable."""
    try:
        return float(text.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return None
