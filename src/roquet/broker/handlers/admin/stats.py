"""Stats: statistics of topics and groups, and their progress."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.large_replies import check_queues, dumped, each_queue, in_slices
from roquet.broker.operations.progress import BrokerProgress
from roquet.broker.refusals import no_topic, system_error
from roquet.broker.replication.replication import Replication
from roquet.broker.replication.stream.framing import ConnectionFacts
from roquet.broker.statistics import COUNT
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model.queue import MessageQueue
from roquet.model.topic import TopicConfig
from roquet.net.router import HandlerReply, Peer
from roquet.wire.call import Reply
from roquet.wire.calls.admin import stats as calls
from roquet.wire.calls.bodies import ConsumeStats
from roquet.wire.fastjson import codec

OFFSET_MAX: Final = 2**63 - 1

OFFSETS_COUNT: Final = 2_000
"""Offsets that are compared before others have their turn: about a millisecond."""

_WHOLE: Final = {"BROKER_PUT_NUMS": "broker_puts", "BROKER_GET_NUMS": "broker_gets"}
"""Statistics of the whole broker; their key is the name of the cluster."""

_NO_GROUPS: Final = b'"consumeStatsList":[]'
"""The empty list in the JSON that is replaced by the groups."""


class StatsHandler(BrokerComponent, frozen=True):
    """Reports statistics of topics, groups and replication."""

    log: MessageLog
    tables: BrokerTables
    control: ControlPlane
    replication: Replication
    progress: BrokerProgress

    def topic_stats(self, call: calls.GetTopicStats, _peer: Peer) -> HandlerReply:
        """Return the bounds and last store time of each queue of a topic."""
        config = self._topic(call.topic)
        queues = [self._queue(call.topic, number) for number in range(config.write_queue_nums)]
        known_as = self.tables.topics.ids.get(call.topic)
        rate = self.control.statistics.put_tps(call.topic)
        return each_queue(
            queues,
            lambda queue: self._queue_stats(call.topic, queue.queue_id),
            lambda offsets: calls.TopicStats(
                offset_table=dict(zip(queues, offsets, strict=True)),
                topic_put_tps=rate,
                topic_id=known_as,
            ),
        )

    def time_span(self, call: calls.GetTimeSpan, _peer: Peer) -> HandlerReply:
        """Return the time span of the messages of each queue, and how late a group is."""
        config = self._topic(call.topic)
        return each_queue(
            range(config.write_queue_nums),
            lambda number: self._time_span(call.topic, call.group, number),
            lambda spans: calls.TimeSpans(consume_time_span_set=spans),
        )

    async def corrections(self, call: calls.GetCorrections, _peer: Peer) -> Reply:
        """Return the least offset of all groups in each queue of a topic.

        Where the compared group is behind it, the value is OFFSET_MAX.
        """
        least: dict[int, int] = {}
        ignored = set((call.filter_groups or "").split(","))
        looked = 0
        for group in self.tables.offsets.groups_of(call.topic):
            if group in ignored:
                continue
            queues = self.tables.offsets.queues(group, call.topic)
            for number, offset in list(queues.items()):
                if offset >= self.log.store.bounds(call.topic, number)[0]:
                    least[number] = min(offset, least.get(number, OFFSET_MAX))
                if (looked := looked + 1) % OFFSETS_COUNT == 0:
                    await asyncio.sleep(0)
        for number, offset in self.tables.offsets.queues(call.compare_group, call.topic).items():
            if least.get(number, 0) > offset:
                least[number] = OFFSET_MAX
        body = calls.Corrections(correction_offsets=least)
        return Reply(body=await dumped(len(least), body))

    async def view(self, call: calls.ViewStats, _peer: Peer) -> Reply:
        """Return the statistics of one name and key."""
        name, key = call.stats_name, call.stats_key
        statistics = self.control.statistics
        if (whole := _WHOLE.get(name)) and key == self.control.settings.config.cluster_name:
            await self.control.sampler.look()
            body = _without_average(statistics.spans(getattr(statistics, whole), COUNT))
        else:
            if name.startswith("TOPIC_PUT"):
                await self.control.sampler.look(key)
            counted = statistics.view(name, key)
            if counted is None:
                raise system_error(f"The stats <{name}> <{key}> not exist")
            body = counted
        return Reply(body=codec.dumps(body))

    async def all_consume_stats(self, call: calls.GetAllConsumeStats, _peer: Peer) -> Reply:
        """Return the progress of all groups; other requests are served in between."""
        topics, parts = self.tables.offsets.by_group(), []
        total = inflight = count = 0
        for group in [settings.group_name for settings in self.tables.groups]:
            group_stats: list[ConsumeStats] = []
            for topic in topics.get(group, []):
                queues = self._group_queues(group, topic, call)
                check_queues(count := count + len(queues))
                group_stats += await self._topic_progress(group, topic, queues)
            table = [queue for stats in group_stats for queue in stats.offset_table.values()]
            total += sum(queue.broker_offset - queue.consumer_offset for queue in table)
            inflight += sum(queue.pull_offset - queue.consumer_offset for queue in table)
            parts.append(await dumped(len(table), {group: group_stats}))
            await asyncio.sleep(0)
        whole = codec.dumps(
            calls.ConsumeStatsList(
                broker_addr=self.log.address, total_diff=total, total_inflight_diff=inflight
            )
        )
        name, rest = whole.split(_NO_GROUPS)
        return Reply(body=b"".join((name, _NO_GROUPS[:-1], b",".join(parts), b"]", rest)))

    def ha_status(self, _call: calls.GetHaStatus, _peer: Peer) -> Reply:
        """Return how far replicas are, or how far this replica is."""
        if not self.replication.role.current.is_master:
            follower = calls.HaStatus(ha_client_runtime_info=self._follower())
            return Reply(body=codec.dumps(follower))
        replicas = self.replication.stream_server.facts
        status = calls.HaStatus(
            master=True,
            master_commit_log_max_offset=self.log.store.end_position,
            in_sync_slave_nums=self._in_sync(replicas),
            ha_connection_info=[
                calls.HaConnection(
                    addr=replica.address,
                    slave_ack_offset=replica.report,
                    diff=replica.lag,
                    in_sync=replica.is_in_sync,
                    transferred_byte_in_second=replica.bytes_per_second,
                    transfer_from_where=replica.position,
                    silent_ms=replica.silent_ms,
                )
                for replica in replicas
            ],
        )
        return Reply(body=codec.dumps(status))

    def _in_sync(self, replicas: Sequence[ConnectionFacts]) -> int:
        """Number of replicas in sync: by the sync-state set, where there is one."""
        if (mode := self.replication.controller_mode) is not None:
            return len(mode.sync_set.state.members) - 1
        return sum(replica.is_in_sync for replica in replicas)

    def _follower(self) -> calls.HaClient:
        facts = self.replication.stream_client.facts
        return calls.HaClient(
            master_addr=facts.master,
            transferred_byte_in_second=facts.bytes_per_second,
            max_offset=facts.end,
            last_read_timestamp=facts.read_ms,
            last_write_timestamp=facts.written_ms,
            is_activated=facts.is_connected,
            local_addr=facts.local,
        )

    def epochs(self, _call: calls.GetEpochs, _peer: Peer) -> Reply:
        """Return the epochs of the log; only brokers with a controller have any."""
        mode = self.replication.controller_mode
        if mode is None:
            raise system_error("this request only for controllerMode ")
        end, entries = self.log.store.raw.end, mode.epochs.entries
        ends = [*(entry.start for entry in entries[1:]), OFFSET_MAX][: len(entries)]
        body = calls.BrokerEpochs(
            cluster_name=self.control.settings.config.cluster_name,
            broker_name=self.control.settings.config.broker_name,
            broker_id=mode.role.current.broker_id,
            epoch_list=[
                calls.EpochRange(epoch=entry.epoch, start_offset=entry.start, end_offset=epoch_end)
                for entry, epoch_end in zip(entries, ends, strict=True)
            ],
            max_offset=end,
        )
        return Reply(body=codec.dumps(body))

    def _group_queues(
        self, group: str, topic: str, call: calls.GetAllConsumeStats
    ) -> list[MessageQueue]:
        """The queues of a topic for a group; none if the group no longer subscribes to it."""
        config = self.tables.topics.get(topic)
        if (
            config is None
            or (call.is_order and not config.order)
            or self.progress.has_unsubscribed(group, topic)
        ):
            return []
        return [self._queue(topic, number) for number in range(config.write_queue_nums)]

    async def _topic_progress(
        self, group: str, topic: str, queues: list[MessageQueue]
    ) -> list[ConsumeStats]:
        if not queues:
            return []
        progress = await in_slices(
            queues, lambda queue: self.progress.of_queue(group, topic, queue.queue_id)
        )
        return [
            ConsumeStats(
                offset_table=dict(zip(queues, progress, strict=True)),
                consume_tps=self.control.statistics.consume_tps(topic, group),
            )
        ]

    def _queue_stats(self, topic: str, number: int) -> calls.QueueStats:
        least, most = self.log.store.bounds(topic, number)
        stored_ms = self.log.store.store_time_at(topic, number, most - 1) if most > 0 else 0
        return calls.QueueStats(min_offset=least, max_offset=most, last_update_timestamp=stored_ms)

    def _time_span(self, topic: str, group: str, number: int) -> calls.TimeSpan:
        store = self.log.store
        least, most = store.bounds(topic, number)
        first_ms = store.earliest_time(topic, number)
        last_ms = store.store_time_at(topic, number, most - 1)
        committed = self.tables.offsets.get(group, topic, number)
        next_offset = max(least, committed or 0)
        handled_ms = first_ms
        if committed is not None and committed > 0:
            handled_ms = store.store_time_at(topic, number, committed - 1)
        next_ms = store.store_time_at(topic, number, next_offset) if next_offset < most else -1
        return calls.TimeSpan(
            message_queue=self._queue(topic, number),
            min_time_stamp=first_ms,
            max_time_stamp=last_ms,
            consume_time_stamp=handled_ms,
            delay_time=self.control.clock.now_ms() - next_ms if next_ms >= 0 else 0,
            min_time_stamp_str=_time_text(first_ms),
            max_time_stamp_str=_time_text(last_ms),
            consume_time_stamp_str=_time_text(handled_ms),
        )

    def _topic(self, topic: str) -> TopicConfig:
        config = self.tables.topics.get(topic)
        if config is None:
            raise no_topic(f"topic[{topic}] not exist")
        return config

    def _queue(self, topic: str, number: int) -> MessageQueue:
        return MessageQueue(topic, self.control.settings.config.broker_name, number)


def _without_average(stats: calls.StatsData) -> calls.StatsData:
    """Without the average per operation, which the genuine broker lacks for the whole broker."""
    parts = [stats.stats_minute, stats.stats_hour, stats.stats_day]
    minute, hour, day = (
        calls.StatsItem(sum=part.sum, tps=part.tps) if part else None for part in parts
    )
    return calls.StatsData(stats_minute=minute, stats_hour=hour, stats_day=day)


def _time_text(ms: int) -> str:
    moment = datetime.fromtimestamp(ms // 1000, tz=UTC).astimezone()
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{ms % 1000:03d}"
