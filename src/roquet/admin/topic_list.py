"""Topic list: size, rate and newest message of all topics.

Each broker is asked once which topics it has, and then once for each of them.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from roquet.admin.client import CONCURRENT_CALLS_MAX, AdminClient
from roquet.admin.topics import TopicQueueInfo, ask_read_only_queues, list_names
from roquet.model.errors import CallError, CallRefused
from roquet.model.topic import TopicConfig, TopicTable
from roquet.wire.calls.admin.stats import GetTopicStats, TopicStats
from roquet.wire.calls.admin.topic import GetTopics
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec


class TopicSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A topic in a list, summed over the brokers that answer; None where none tells.

    The fields are the keys of `roquet topic ls --json`.
    """

    name: str
    brokers: list[str]
    queues: int | None = None
    messages: int | None = None
    in_per_s: float | None = None
    """Messages stored per second in the last minute."""
    stored_ms: int | None = None
    """When its newest message was stored; None without any."""


async def summaries(
    admin: AdminClient, *, system: bool = False
) -> tuple[list[TopicSummary], Mapping[str, CallError]]:
    """All topics by name, and errors by broker name: its part is missing in the sums.

    Retry, dead-letter and system topics only with `system`.
    """
    names, brokers = await asyncio.gather(list_names(admin, system=system), admin.brokers())
    answers, failed = await admin.ask_each(brokers, GetTopics())
    tables = {
        broker: codec.loads(reply.body, TopicTable).topic_config_table
        for broker, reply in answers.items()
    }
    sizes = _TopicSizes(admin, brokers, tables, failed)
    return await asyncio.gather(*map(sizes.summary, names)), failed


class _TopicSizes:
    """Asks for sizes of topics; a broker that has failed once is not asked again."""

    def __init__(
        self,
        admin: AdminClient,
        brokers: Mapping[str, str],
        tables: Mapping[str, Mapping[str, TopicConfig]],
        failed: dict[str, CallError],
    ) -> None:
        self._admin, self._brokers, self._tables = admin, brokers, tables
        self._failed = failed
        self._slots = asyncio.Semaphore(CONCURRENT_CALLS_MAX)

    async def summary(self, name: str) -> TopicSummary:
        """A topic with what its brokers tell."""
        sizes = {broker: table[name] for broker, table in self._tables.items() if name in table}
        counts = [max(size.read_queue_nums, size.write_queue_nums) for size in sizes.values()]
        answers = await asyncio.gather(*(self._stats(broker, name) for broker in sizes))
        stats = [one for one in answers if one is not None]
        read_only, failed = await ask_read_only_queues(self._admin, name, self._brokers, sizes)
        self._failed.update(failed)
        if not stats:
            return TopicSummary(name=name, brokers=[*sizes], queues=sum(counts) or None)
        return _summary(name, [*sizes], sum(counts), stats, read_only)

    async def _stats(self, broker: str, name: str) -> TopicStats | None:
        """A topic's queues on a broker; None where it fails, or has lost the topic meanwhile."""
        try:
            async with self._slots:
                if broker in self._failed:
                    return None
                reply = await self._admin.ask(self._brokers[broker], GetTopicStats(topic=name))
        except CallError as error:
            is_gone = isinstance(error, CallRefused) and error.code == ResponseCode.TOPIC_NOT_EXIST
            if not is_gone:
                self._failed[broker] = error
            return None
        return codec.loads(reply.body, TopicStats)


def _summary(
    name: str,
    brokers: list[str],
    queues: int,
    stats: Sequence[TopicStats],
    read_only: Sequence[TopicQueueInfo],
) -> TopicSummary:
    offsets = [each for one in stats for each in one.offset_table.values()]
    rates = [one.topic_put_tps for one in stats if one.topic_put_tps is not None]
    return TopicSummary(
        name=name,
        brokers=brokers,
        queues=queues,
        messages=sum(each.max_offset - each.min_offset for each in offsets)
        + sum(each.end - each.begin for each in read_only),
        in_per_s=sum(rates) if rates else None,
        stored_ms=max((each.last_update_timestamp for each in offsets), default=0) or None,
    )
