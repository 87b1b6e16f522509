"""Traffic: messages in and out, dead letters, transactions, timers and pops of a broker."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final

from roquet.broker import admission
from roquet.broker.broker import Broker
from roquet.broker.statistics import StatsCounter
from roquet.broker.tables.topics import system_topic_names
from roquet.metrics import rocketmq_metrics as rocketmq
from roquet.metrics import roquet_metrics as roquet
from roquet.metrics.counts import OTHER, SERIES_MAX
from roquet.metrics.text_format import MetricsPage
from roquet.model.names import (
    HALF_TOPIC,
    REVIVE_GROUP,
    SYSTEM_TOPIC_PREFIX,
    TIMER_TOPIC,
    is_retry,
    is_system_group,
)
from roquet.model.subscription import ConsumeType
from roquet.net.router import Peer
from roquet.rules.delay.timer import floor_ms
from roquet.store.timer.wheel import SLOTS_PER_STEP
from roquet.wire.codes import Language, release_of

POOLS: Final[Mapping[str, str]] = {
    "send": admission.SEND,
    "ack": admission.ACK,
    "query_message": admission.QUERY,
    "heartbeat": admission.HEARTBEAT,
    "transaction": admission.TRANSACTION,
    "admin": admission.ADMIN,
}
"""Thread pools of Apache's broker and our limits of the same requests. In the others nothing waits:
pulls that wait for messages do not wait for the broker."""

MODES: Final[Mapping[ConsumeType, str]] = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
"""Modes of consumers, as Apache's metrics call them."""

PROTOCOL: Final = "remoting"

SERIES_COUNT: Final = 200
"""Series that are added before others have their turn: about a millisecond."""

DISK: Final = ("disk", "local")
"""Medium and type of the storage, as Apache's metrics call them."""

PUT_OK: Final = "PUT_OK"
"""Status of stored records, as Apache's metrics call it: others are not counted."""

SECOND_MS: Final = 1_000
"""Ms of a slot of the timer wheel."""


def version_name(number: int) -> str:
    """A client's version as Apache's metrics show it: v5_5_0, v5_4_9_snapshot or the number."""
    release = release_of(number)
    return str(number) if release is None else f"v{release}".replace(".", "_").replace("-", "_")


def language_name(number: int) -> str:
    """A client's language as Apache's metrics show it."""
    known = number in Language.__members__.values()
    return Language(number).name.lower() if known else str(number)


def flag(value: bool) -> str:
    """A switch as the value of a label."""
    return str(value).lower()


def add_inventory(broker: Broker, page: MetricsPage) -> None:
    """Add numbers of topics, groups, connections and waiting requests."""
    config = broker.control.settings.config
    page.add(rocketmq.BROKER_PERMISSION, config.permission)
    page.add(rocketmq.TOPIC_NUMBER, sum(1 for _ in broker.tables.topics))
    page.add(rocketmq.CONSUMER_GROUP_NUMBER, sum(1 for _ in broker.tables.groups))
    gates = broker.control.admission.gates
    for processor in rocketmq.PROCESSORS:
        count = gates[POOLS[processor]].count if processor in POOLS else 0
        page.add(rocketmq.PROCESSOR_WATERMARK, count, processor)
    for kind, gate in gates.items():
        page.add(roquet.WAITING_REQUESTS, gate.count, kind)
        page.add(roquet.WAITING_REQUESTS_LIMIT, gate.limits.count, kind)
    page.add(roquet.SLOW_REQUESTS, broker.control.slow_requests.count)
    _add_producers(broker, page)


def _add_producers(broker: Broker, page: MetricsPage) -> None:
    clients = broker.tables.clients
    groups = clients.producer_groups()
    peers = dict.fromkeys(peer for group in groups for peer in clients.producers(group))
    for (language, version), count in Counter(map(_kind, peers)).items():
        page.add(rocketmq.PRODUCER_CONNECTIONS, count, language, version, PROTOCOL)


def add_consumers(broker: Broker, page: MetricsPage, name: str) -> None:
    """Add the connections of a consumer group."""
    if (group := broker.tables.clients.consumers(name)) is None:
        return
    mode, system = MODES[group.consume_type], flag(is_system_group(name))
    for (language, version), count in Counter(map(_kind, group.members)).items():
        page.add(
            rocketmq.CONSUMER_CONNECTIONS, count, *(name, mode, language, version, PROTOCOL, system)
        )


def _kind(peer: Peer) -> tuple[str, str]:
    return language_name(peer.language), version_name(peer.version)


class SystemNames:
    """Names of topics and groups that are the system's."""

    def __init__(self, broker: Broker) -> None:
        self._topics = system_topic_names(broker.control.settings.config)

    def label(self, topic: str, group: str = "") -> str:
        """Whether topic or group is the system's, as the value of a label."""
        is_topics = topic in self._topics or topic.startswith(SYSTEM_TOPIC_PREFIX)
        return flag(is_topics or is_system_group(group))


async def add_traffic(broker: Broker, page: MetricsPage) -> None:
    """Add messages in and out."""
    system, counts = SystemNames(broker), broker.log.counts
    for number, ((topic, kind), stored) in enumerate(counts.stored.items(), 1):
        labels = (topic, kind, system.label(topic))
        page.add(rocketmq.MESSAGES_IN, stored.count, *labels)
        page.add(rocketmq.THROUGHPUT_IN, stored.size, *labels)
        page.add_histogram(rocketmq.MESSAGE_SIZE, stored.sizes, *labels)
        if number % SERIES_COUNT == 0:
            await asyncio.sleep(0)
    statistics = broker.control.statistics
    for number, ((topic, group), got) in enumerate(list(statistics.gets.items()), 1):
        _add_got(page, got, topic, group, system.label(topic, group))
        if number % SERIES_COUNT == 0:
            await asyncio.sleep(0)
    if statistics.other_gets.times and (OTHER, OTHER) not in statistics.gets:
        _add_got(page, statistics.other_gets, OTHER, OTHER, flag(False))


def _add_got(page: MetricsPage, got: StatsCounter, topic: str, group: str, system: str) -> None:
    labels = (topic, group, system, flag(is_retry(topic)))
    page.add(rocketmq.MESSAGES_OUT, got.count, *labels)
    page.add(rocketmq.THROUGHPUT_OUT, got.size, *labels)


async def add_events(broker: Broker, page: MetricsPage) -> None:
    """Add dead letters, transactions, timers, pops, rebalances and messages set aside."""
    system, counts = SystemNames(broker), broker.log.counts
    for (group, topic), dead in counts.dead_letters.items():
        page.add(rocketmq.SEND_TO_DLQ, dead.value, group, topic, system.label(topic, group))
    for (group, topic), unread in counts.retention_unread.items():
        page.add(roquet.RETENTION_UNREAD, unread.value, group, topic)
    await asyncio.sleep(0)
    for (group,), rebalanced in broker.coordination.rebalances.items():
        page.add(roquet.REBALANCES, rebalanced.value, group)
    await asyncio.sleep(0)
    _add_transactions(broker, page)
    await asyncio.sleep(0)
    _add_timer(broker, page)
    await _add_snapshot(broker, page)
    await asyncio.sleep(0)
    _add_pops(broker, page)
    for excess, requests in sorted(broker.control.quotas.excesses.items()):
        page.add(roquet.QUOTA_EXCESS, requests, *excess)
    for service, number in sorted(broker.delivery.set_aside.counts.items()):
        page.add(roquet.SET_ASIDE, number, service)


def _add_transactions(broker: Broker, page: MetricsPage) -> None:
    counts, transactions = broker.log.counts, broker.delivery.transactions
    for (topic,), committed in counts.commits.items():
        page.add(rocketmq.COMMIT_MESSAGES, committed.value, topic)
    for (topic,), rolled_back in counts.rollbacks.items():
        page.add(rocketmq.ROLLBACK_MESSAGES, rolled_back.value, topic)
    for (topic,), seconds in counts.commit_s.items():
        page.add_histogram(rocketmq.FINISH_LATENCY, seconds, topic)
        page.add_histogram(roquet.TRANSACTION_TIME, seconds, topic)
    end = broker.log.store.bounds(HALF_TOPIC, 0)[1]
    first = transactions.halves.next_open(transactions.halves.start)
    page.add(roquet.HALF_MESSAGES, max(0, end - first))


def _add_timer(broker: Broker, page: MetricsPage) -> None:
    counts, timer, store = broker.log.counts, broker.delivery.timer, broker.log.store
    for (topic,), enqueued in counts.timer_enqueued.items():
        page.add(rocketmq.TIMER_ENQUEUE, enqueued.value, topic, *DISK)
    for (topic,), dequeued in counts.timer_dequeued.items():
        page.add(rocketmq.TIMER_DEQUEUE, dequeued.value, topic, *DISK)
    for (topic,), seconds in counts.delay_s.items():
        page.add_histogram(rocketmq.DELAY_LATENCY, seconds, topic, *DISK)
    _add_timing(broker, page)
    page.add(rocketmq.TIMER_DEQUEUE_LAG, timer.context.metrics.total, *DISK)
    behind, now_ms = max(0, timer.behind), broker.control.clock.now_ms()
    page.add(rocketmq.TIMER_ENQUEUE_LAG, behind, *DISK)
    waits_ms = 0
    if behind:
        end = store.bounds(TIMER_TOPIC, 0)[1]
        stored_ms = store.store_time_at(TIMER_TOPIC, 0, end - behind)
        waits_ms = max(0, now_ms - stored_ms) if stored_ms > 0 else 0
    page.add(rocketmq.TIMER_ENQUEUE_LATENCY, waits_ms, *DISK)
    late_ms = now_ms - timer.context.timers.read_ms - SECOND_MS
    is_used = timer.context.timers.exists and timer.context.metrics.total
    page.add(rocketmq.TIMER_DEQUEUE_LATENCY, max(0, late_ms) if is_used else 0, *DISK)


def _add_timing(broker: Broker, page: MetricsPage) -> None:
    """Add the messages that wait, by topic."""
    waiting = broker.delivery.timer.context.metrics
    topics = list(waiting.content().timing_count)
    for topic in topics[:SERIES_MAX]:
        page.add(rocketmq.TIMING_MESSAGES, waiting.get(topic), topic, *DISK)
    if others := topics[SERIES_MAX:]:
        broker.log.counts.unlisted += len(others)
        page.add(rocketmq.TIMING_MESSAGES, sum(map(waiting.get, others)), OTHER, *DISK)


async def _add_snapshot(broker: Broker, page: MetricsPage) -> None:
    """Add the messages that wait, by the time until they are due, with pauses."""
    timers = broker.delivery.timer.context.timers
    now_ms = floor_ms(broker.control.clock.now_ms())
    # What is late is due now. The second that is read stands still before the first message.
    begin_ms = min(timers.read_ms, now_ms) if timers.exists else now_ms
    for bound_s in rocketmq.TIMER_BOUNDS_S:
        end_ms, count = now_ms + bound_s * SECOND_MS, 0
        while begin_ms < end_ms:
            step_ms = min(end_ms, begin_ms + SLOTS_PER_STEP * SECOND_MS)
            count += timers.count(begin_ms, step_ms)
            begin_ms = step_ms
            await asyncio.sleep(0)
        page.add(rocketmq.TIMER_SNAPSHOT, count, str(bound_s), *DISK)


def _add_pops(broker: Broker, page: MetricsPage) -> None:
    counts, revive = broker.log.counts, broker.delivery.revive
    page.add(rocketmq.POP_OFFSET_BUFFER, 0)
    page.add(rocketmq.POP_CHECKPOINT_BUFFER, len(revive.in_flight))
    for (topic, group, kind), noted in counts.revive_notes.items():
        page.add(rocketmq.POP_REVIVE_IN, noted.value, topic, group, kind, PUT_OK)
    for (topic, group), again in counts.redelivered.items():
        page.add(rocketmq.POP_REVIVE_RETRY, again.value, topic, group, PUT_OK)
    store, offsets = broker.log.store, broker.tables.offsets
    for queue_id in sorted(store.queue_ids(revive.topic)):
        settled = offsets.get(REVIVE_GROUP, revive.topic, queue_id)
        least, end = store.bounds(revive.topic, queue_id)
        first = least if settled is None else max(least, settled + 1)
        page.add(rocketmq.POP_REVIVE_LAG, max(0, end - first), str(queue_id))
        page.add(roquet.POP_REVIVE_LAG, max(0, end - first), str(queue_id))
