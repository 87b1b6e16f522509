"""Statistics and progress in numbers."""

import asyncio
from datetime import UTC, datetime
from typing import Final

from roquet.broker.broker import Broker
from roquet.broker.handlers.group import has_left, progress
from roquet.broker.handlers.paging import check_queues, dumped, each_queue, in_slices
from roquet.broker.statistics import COUNT
from roquet.model.errors import CallRefused
from roquet.model.queue import MessageQueue
from roquet.model.topic import TopicConfig
from roquet.net.router import HandlerReply, Peer
from roquet.wire.call import Reply
from roquet.wire.calls.admin import stats as calls
from roquet.wire.calls.bodies import ConsumeStats
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

OFFSET_MAX: Final = 2**63 - 1

OFFSETS_COUNT: Final = 2_000
"""Offsets that are compared before others have their turn: about a millisecond."""


def topic_stats(broker: Broker, call: calls.GetTopicStats, _peer: Peer) -> HandlerReply:
    """What each queue of a topic holds."""
    config = _topic(broker, call.topic)
    queues = [_queue(broker, call.topic, number) for number in range(config.write_queue_nums)]
    known_as = broker.topics.ids.get(call.topic)
    return each_queue(
        queues,
        lambda queue: _queue_stats(broker, call.topic, queue.queue_id),
        lambda found: calls.TopicStats(
            offset_table=dict(zip(queues, found, strict=True)), topic_id=known_as
        ),
    )


def time_span(broker: Broker, call: calls.GetTimeSpan, _peer: Peer) -> HandlerReply:
    """Of which time the messages of a topic's queues are, and how late a group is in each."""
    config = _topic(broker, call.topic)
    return each_queue(
        range(config.write_queue_nums),
        lambda number: _time_span(broker, call.topic, call.group, number),
        lambda found: calls.TimeSpans(consume_time_span_set=found),
    )


async def corrections(broker: Broker, call: calls.GetCorrections, _peer: Peer) -> Reply:
    """The least progress of all groups in each queue of a topic.

    Where the compared group is behind it, the highest number stands instead.
    """
    least: dict[int, int] = {}
    ignored = set((call.filter_groups or "").split(","))
    looked = 0
    for group in broker.offsets.groups_of(call.topic):
        if group in ignored:
            continue
        queues = broker.offsets.queues(group, call.topic)
        for number, offset in list(queues.items()):
            if offset >= broker.store.bounds(call.topic, number)[0]:
                least[number] = min(offset, least.get(number, OFFSET_MAX))
            if (looked := looked + 1) % OFFSETS_COUNT == 0:
                await asyncio.sleep(0)
    for number, offset in broker.offsets.queues(call.compare_group, call.topic).items():
        if least.get(number, 0) > offset:
            least[number] = OFFSET_MAX
    found = calls.Corrections(correction_offsets=least)
    return Reply(body=await dumped(len(least), found))


async def view(broker: Broker, call: calls.ViewStats, _peer: Peer) -> Reply:
    """What was counted under one name and key."""
    name, key = call.stats_name, call.stats_key
    statistics = broker.statistics
    if (whole := _WHOLE.get(name)) and key == broker.config.cluster_name:
        await broker.sampling.look()
        found = _without_average(statistics.spans(getattr(statistics, whole), COUNT))
    else:
        if name.startswith("TOPIC_PUT"):
            await broker.sampling.look(key)
        counted = statistics.view(name, key)
        if counted is None:
            raise CallRefused(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        found = counted
    return Reply(body=codec.dumps(found))


_WHOLE: Final = {"BROKER_PUT_NUMS": "broker_puts", "BROKER_GET_NUMS": "broker_gets"}
"""What is counted for the broker as a whole; its key is the name of the cluster."""


async def all_consume_stats(broker: Broker, call: calls.GetAllConsumeStats, _peer: Peer) -> Reply:
    """The progress of all groups, each in its turn: others are served between them."""
    topics, parts = broker.offsets.by_group(), []
    total = inflight = count = 0
    for group in [settings.group_name for settings in broker.groups]:
        found: list[ConsumeStats] = []
        for topic in topics.get(group, []):
            queues = _group_queues(broker, group, topic, call)
            check_queues(count := count + len(queues))
            found += await _topic_progress(broker, group, topic, queues)
        table = [queue for one in found for queue in one.offset_table.values()]
        total += sum(queue.broker_offset - queue.consumer_offset for queue in table)
        inflight += sum(queue.pull_offset - queue.consumer_offset for queue in table)
        parts.append(await dumped(len(table), {group: found}))
        await asyncio.sleep(0)
    whole = codec.dumps(
        calls.ConsumeStatsList(
            broker_addr=broker.address, total_diff=total, total_inflight_diff=inflight
        )
    )
    name, rest = whole.split(_NO_GROUPS)
    return Reply(body=b"".join((name, _NO_GROUPS[:-1], b",".join(parts), b"]", rest)))


_NO_GROUPS: Final = b'"consumeStatsList":[]'
"""What stands for the groups before they are put in."""


def ha_status(broker: Broker, _call: calls.GetHaStatus, _peer: Peer) -> Reply:
    """A leader without followers."""
    status = calls.HaStatus(master=True, master_commit_log_max_offset=broker.store.end_position)
    return Reply(body=codec.dumps(status))


def epochs(_broker: Broker, _call: calls.GetEpochs, _peer: Peer) -> Reply:
    """Known where a controller elects leaders, which this broker has not."""
    raise CallRefused(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")


def _group_queues(
    broker: Broker, group: str, topic: str, call: calls.GetAllConsumeStats
) -> list[MessageQueue]:
    """The queues of a topic that count for a group; none of one that it has left."""
    config = broker.topics.get(topic)
    if config is None or (call.is_order and not config.order) or has_left(broker, group, topic):
        return []
    return [_queue(broker, topic, number) for number in range(config.write_queue_nums)]


async def _topic_progress(
    broker: Broker, group: str, topic: str, queues: list[MessageQueue]
) -> list[ConsumeStats]:
    if not queues:
        return []
    found = await in_slices(queues, lambda queue: progress(broker, group, topic, queue.queue_id))
    return [
        ConsumeStats(
            offset_table=dict(zip(queues, found, strict=True)),
            consume_tps=broker.statistics.consume_tps(topic, group),
        )
    ]


def _queue_stats(broker: Broker, topic: str, number: int) -> calls.QueueStats:
    least, most = broker.store.bounds(topic, number)
    stored_ms = broker.store.store_time_at(topic, number, most - 1) if most > 0 else 0
    return calls.QueueStats(min_offset=least, max_offset=most, last_update_timestamp=stored_ms)


def _time_span(broker: Broker, topic: str, group: str, number: int) -> calls.TimeSpan:
    store = broker.store
    least, most = store.bounds(topic, number)
    first_ms = store.earliest_time(topic, number)
    last_ms = store.store_time_at(topic, number, most - 1)
    committed = broker.offsets.get(group, topic, number)
    next_offset = max(least, committed or 0)
    handled_ms = first_ms
    if committed is not None and committed > 0:
        handled_ms = store.store_time_at(topic, number, committed - 1)
    next_ms = store.store_time_at(topic, number, next_offset) if next_offset < most else -1
    return calls.TimeSpan(
        message_queue=_queue(broker, topic, number),
        min_time_stamp=first_ms,
        max_time_stamp=last_ms,
        consume_time_stamp=handled_ms,
        delay_time=broker.clock.now_ms() - next_ms if next_ms >= 0 else 0,
        min_time_stamp_str=_time_text(first_ms),
        max_time_stamp_str=_time_text(last_ms),
        consume_time_stamp_str=_time_text(handled_ms),
    )


def _topic(broker: Broker, topic: str) -> TopicConfig:
    config = broker.topics.get(topic)
    if config is None:
        raise CallRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    return config


def _queue(broker: Broker, topic: str, number: int) -> MessageQueue:
    return MessageQueue(topic, broker.config.broker_name, number)


def _without_average(found: calls.StatsData) -> calls.StatsData:
    """As the genuine broker, which does not count how often for the broker as a whole."""
    parts = [found.stats_minute, found.stats_hour, found.stats_day]
    minute, hour, day = (
        calls.StatsItem(sum=part.sum, tps=part.tps) if part else None for part in parts
    )
    return calls.StatsData(stats_minute=minute, stats_hour=hour, stats_day=day)


def _time_text(ms: int) -> str:
    """A time by the machine's own clock, as Java's tools print it."""
    moment = datetime.fromtimestamp(ms // 1000, tz=UTC).astimezone()
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{ms % 1000:03d}"
