"""TopicSample: the size of a topic at one time, and how fast it grows."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from roquet.admin.client import AdminClient, failures_text
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
