"""Statistics and progress of a broker in numbers."""

from typing import ClassVar

import msgspec

from roquet.model.queue import MessageQueue
from roquet.wire.call import Call, Long, Reply
from roquet.wire.calls.bodies import ConsumeStats
from roquet.wire.codes import RequestCode


class GetTopicStats(Call[Reply], frozen=True, kw_only=True):
    """Get the offsets of a topic's queues; the reply's body is a TopicStats."""

    code: ClassVar = RequestCode.GET_TOPIC_STATS_INFO

    topic: str


class GetRuntimeInfo(Call[Reply], frozen=True, kw_only=True):
    """Get a broker's state; the reply's body is a KVTable."""

    code: ClassVar = RequestCode.GET_BROKER_RUNTIME_INFO


class GetTimeSpan(Call[Reply], frozen=True, kw_only=True):
    """Get the store times of a topic's messages, and a group's; the reply's body is a TimeSpans."""

    code: ClassVar = RequestCode.QUERY_CONSUME_TIME_SPAN

    topic: str
    group: str


class GetCorrections(Call[Reply], frozen=True, kw_only=True):
    """Get the lowest progress of all groups of a topic; the reply's body is a Corrections."""

    code: ClassVar = RequestCode.QUERY_CORRECTION_OFFSET

    topic: str
    compare_group: str
    """Queues in which it is behind all others are reported as the highest number."""
    filter_groups: str | None = None
    """Groups that do not count, separated by commas."""


class ViewStats(Call[Reply], frozen=True, kw_only=True):
    """Get the counts under a name and a key; the reply's body is a StatsData."""

    code: ClassVar = RequestCode.VIEW_BROKER_STATS_DATA

    stats_name: str
    stats_key: str


class GetAllConsumeStats(Call[Reply], frozen=True, kw_only=True):
    """Get the progress of all groups of a broker; the reply's body is a ConsumeStatsList."""

    code: ClassVar = RequestCode.GET_BROKER_CONSUME_STATS

    is_order: bool = False
    """Ordered topics only."""


class GetHaStatus(Call[Reply], frozen=True, kw_only=True):
    """Get the progress of a broker's followers; the reply's body is a HaStatus."""

    code: ClassVar = RequestCode.GET_BROKER_HA_STATUS


class GetEpochs(Call[Reply], frozen=True, kw_only=True):
    """Get the epochs of a broker's log, a BrokerEpochs; only brokers with a controller have any."""

    code: ClassVar = RequestCode.GET_BROKER_EPOCH_CACHE


class QueueStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Offsets of a queue (Java's TopicOffset)."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0
    """Store time of its newest message; 0 without any."""


class TopicStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Offsets of a topic's queues (Java's TopicStatsTable)."""

    offset_table: dict[MessageQueue, QueueStats] = {}
    topic_put_tps: float | None = None
    """Messages stored per second in the last minute; None: RocketMQ 4.9 does not say."""
    topic_id: str | None = None
    """Id of the topic (rules.topic_id); ours only."""


class TimeSpan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Store times of a queue's messages, and of the last one that a group has handled."""

    message_queue: MessageQueue
    min_time_stamp: int = -1
    max_time_stamp: int = -1
    consume_time_stamp: int = -1
    delay_time: int = 0
    """How long the next message has been waiting, in ms."""
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class TimeSpans(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The queues of a topic by time (Java's QueryConsumeTimeSpanBody)."""

    consume_time_span_set: list[TimeSpan] = []


class Corrections(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Queue id to offset (Java's QueryCorrectionOffsetBody)."""

    correction_offsets: dict[int, Long] = {}


class StatsItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Counts of a span of time: sum, per second, per call (Java's BrokerStatsItem)."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class StatsData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Counts of the last minute, hour and day (Java's BrokerStatsData)."""

    stats_minute: StatsItem | None = None
    stats_hour: StatsItem | None = None
    stats_day: StatsItem | None = None


class ConsumeStatsList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Progress of all groups: a list with one group each, with the statistics of its topics."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    broker_addr: str | None = None
    total_diff: int = 0
    """Waiting messages of all groups."""
    total_inflight_diff: int = 0
    """Delivered and not acknowledged messages."""


class HaConnection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One follower (Java's HAConnectionRuntimeInfo)."""

    addr: str | None = None
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0
    silent_ms: int | None = None
    """Ms since its last report; ours only."""


class HaClient(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A follower's own state (Java's HAClientRuntimeInfo); zeros at a leader."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    is_activated: bool | None = msgspec.field(default=None, name="activated")
    local_addr: str | None = None
    """HOST:PORT from which it is connected, as in `HaConnection.addr`; ours only."""


class HaStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A leader and its followers (Java's HARuntimeInfo)."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HaConnection] = []
    ha_client_runtime_info: HaClient | None = HaClient()


class EpochRange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Positions [start, end) of one epoch (Java's EpochEntry); the last one's end is 2^63 - 1."""

    epoch: int
    start_offset: Long
    end_offset: Long


class BrokerEpochs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Epochs of a broker's log (Java's EpochEntryCache)."""

    cluster_name: str
    broker_name: str
    broker_id: Long
    """0 at the master."""
    epoch_list: list[EpochRange] = []
    max_offset: Long
    """Position of the log's end."""
