"""RocketMQ metrics: those of Apache RocketMQ 5.5's brokers, with its names, labels and units.

Existing boards read them. Where a name says less than the truth, as a histogram in seconds that is
called milliseconds, the help text says what it is, and `roquet_metrics` has one that is right.
"""

from typing import Final

from roquet.metrics.metric import Metric, NodeType, counter, gauge, histogram
from roquet.metrics.request_counts import LATENCY_MS

STORAGE: Final = ("storage_medium", "storage_type")

MESSAGE_SIZES: Final = (1024, 4096, 524288, 1048576, 2097152, 4194304)
"""Bounds of message sizes in bytes."""

FINISH_S: Final = (5, 60, 600, 3600, 43200, 86400)
"""Bounds of the time from a half message to its end, in seconds."""

DELAY_S: Final = (60, 600, 3600, 43200, 86400, 259200)
"""Bounds of the delay that messages ask for, in seconds."""

TIMER_BOUNDS_S: Final = (5, 60, 300, 900, 3600, 14400, 28800, 86400)
"""Bounds of the time until a delivery, in seconds."""

PROCESSORS: Final = (
    "send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat",
    "lite_pull", "transaction", "consumer_manager", "admin", "reply",
)  # fmt: skip
"""Thread pools of Apache's broker."""

BROKER_PERMISSION: Final = gauge(
    "rocketmq_broker_permission", "Permission of the broker: 6 is read and write, 4 read, 2 write."
)
TOPIC_NUMBER: Final = gauge("rocketmq_topic_number", "Topics of the broker, system topics too.")
CONSUMER_GROUP_NUMBER: Final = gauge(
    "rocketmq_consumer_group_number", "Consumer groups of the broker, system groups too."
)
PROCESSOR_WATERMARK: Final = gauge(
    "rocketmq_processor_watermark",
    "Requests that wait to be served, by Apache's thread pools; pulls that wait for messages do"
    " not count.",
    "processor",
)
MESSAGES_IN: Final = counter(
    "rocketmq_messages_in_total",
    "Messages stored; a delayed one counts when it comes and when it is delivered.",
    "topic", "message_type", "is_system",
)  # fmt: skip
THROUGHPUT_IN: Final = counter(
    "rocketmq_throughput_in_total", "Bytes of the messages in rocketmq_messages_in_total.",
    "topic", "message_type", "is_system",
)  # fmt: skip
MESSAGE_SIZE: Final = histogram(
    "rocketmq_message_size", "Bytes of a message; a batch counts once, with its average.",
    "topic", "message_type", "is_system", bounds=MESSAGE_SIZES,
)  # fmt: skip
MESSAGES_OUT: Final = counter(
    "rocketmq_messages_out_total", "Messages given to pulls and pops.",
    "topic", "consumer_group", "is_system", "is_retry",
)  # fmt: skip
THROUGHPUT_OUT: Final = counter(
    "rocketmq_throughput_out_total", "Bytes of the messages in rocketmq_messages_out_total.",
    "topic", "consumer_group", "is_system", "is_retry",
)  # fmt: skip
RPC_LATENCY: Final = histogram(
    "rocketmq_rpc_latency_milliseconds", "Milliseconds from serving a request to its reply.",
    "protocol_type", "request_code", "response_code", "is_long_polling", "result",
    bounds=LATENCY_MS,
)  # fmt: skip
PRODUCER_CONNECTIONS: Final = gauge(
    "rocketmq_producer_connections", "Connections of producers.",
    "language", "version", "protocol_type",
)  # fmt: skip
CONSUMER_CONNECTIONS: Final = gauge(
    "rocketmq_consumer_connections", "Connections of consumers.",
    "consumer_group", "consume_mode", "language", "version", "protocol_type", "is_system",
)  # fmt: skip

_OF_GROUP: Final = ("consumer_group", "topic", "is_retry", "is_system")

LAG_MESSAGES: Final = gauge(
    "rocketmq_consumer_lag_messages",
    "Messages that a group with a member online has not committed.", *_OF_GROUP,
)  # fmt: skip
LAG_LATENCY: Final = gauge(
    "rocketmq_consumer_lag_latency_milliseconds",
    "Age of the first message that a group with a member online has not committed; 0 without one.",
    *_OF_GROUP,
)  # fmt: skip
INFLIGHT_MESSAGES: Final = gauge(
    "rocketmq_consumer_inflight_messages",
    "Messages that a group with a member online has got and not committed.", *_OF_GROUP,
)  # fmt: skip
QUEUEING_LATENCY: Final = gauge(
    "rocketmq_consumer_queueing_latency_milliseconds",
    "Age of the first message that a group with a member online has not got; 0 without one.",
    *_OF_GROUP,
)  # fmt: skip
READY_MESSAGES: Final = gauge(
    "rocketmq_consumer_ready_messages",
    "Messages that a group with a member online has not got.", *_OF_GROUP,
)  # fmt: skip
SEND_TO_DLQ: Final = counter(
    "rocketmq_send_to_dlq_messages_total", "Messages that became dead letters.",
    "consumer_group", "topic", "is_system",
)  # fmt: skip
COMMIT_MESSAGES: Final = counter(
    "rocketmq_commit_messages_total", "Half messages that were committed.", "topic"
)
ROLLBACK_MESSAGES: Final = counter(
    "rocketmq_rollback_messages_total", "Half messages that were rolled back.", "topic"
)
FINISH_LATENCY: Final = histogram(
    "rocketmq_finish_message_latency_milliseconds",
    "SECONDS, in spite of the name, from a half message to its commit; see"
    " roquet_transaction_seconds.",
    "topic", bounds=FINISH_S,
)  # fmt: skip
STORAGE_SIZE: Final = gauge(
    "rocketmq_storage_size_bytes", "Bytes in use on the disk that holds the store, by anybody.",
    *STORAGE,
)  # fmt: skip
FLUSH_BEHIND: Final = gauge(
    "rocketmq_storage_flush_behind_bytes", "Bytes of the log that are not on the disk.", *STORAGE
)
DISPATCH_BEHIND: Final = gauge(
    "rocketmq_storage_dispatch_behind_bytes",
    "Bytes of the log that the key index does not cover; queues are never behind.", *STORAGE,
)  # fmt: skip
RESERVE_TIME: Final = gauge(
    "rocketmq_storage_message_reserve_time_milliseconds",
    "Age of the oldest message in the log; absent for an empty log.", *STORAGE,
)  # fmt: skip
TIMER_ENQUEUE_LAG: Final = gauge(
    "rocketmq_timer_enqueue_lag", "Stored messages that are not on the timer wheel yet.", *STORAGE
)
TIMER_ENQUEUE_LATENCY: Final = gauge(
    "rocketmq_timer_enqueue_latency_milliseconds",
    "Age of the first message that is not on the timer wheel yet; 0 without one.", *STORAGE,
)  # fmt: skip
TIMER_DEQUEUE_LAG: Final = gauge(
    "rocketmq_timer_dequeue_lag",
    "ALL messages that wait on the timer wheel, due or not; see"
    " rocketmq_timer_dequeue_latency_milliseconds for how late they are.",
    *STORAGE,
)  # fmt: skip
TIMER_SNAPSHOT: Final = gauge(
    "rocketmq_timer_message_snapshot",
    "Messages on the timer wheel that are due within timer_bound_s seconds, and not within the"
    " bound before it.",
    "timer_bound_s", *STORAGE,
)  # fmt: skip
TIMER_DEQUEUE_LATENCY: Final = gauge(
    "rocketmq_timer_dequeue_latency_milliseconds",
    "How far the timer is behind the clock, beyond the second that it is in.", *STORAGE,
)  # fmt: skip
TIMER_ENQUEUE: Final = counter(
    "rocketmq_timer_enqueue_total", "Messages put on the timer wheel.", "topic", *STORAGE
)
TIMER_DEQUEUE: Final = counter(
    "rocketmq_timer_dequeue_total", "Messages that the timer delivered.", "topic", *STORAGE
)
TIMING_MESSAGES: Final = gauge(
    "rocketmq_timing_messages", "Messages that wait for their delivery time.", "topic", *STORAGE
)
DELAY_LATENCY: Final = histogram(
    "rocketmq_delay_message_latency_seconds",
    "Seconds from now to the delivery time of a message, when it is put on the timer wheel.",
    "topic", *STORAGE, bounds=DELAY_S,
)  # fmt: skip
POP_OFFSET_BUFFER: Final = gauge(
    "rocketmq_pop_offset_buffer_size", "Always 0: progress of pops is not buffered here."
)
POP_CHECKPOINT_BUFFER: Final = gauge(
    "rocketmq_pop_checkpoint_buffer_size", "Pops in flight: checkpoints that are not settled."
)
POP_REVIVE_IN: Final = counter(
    "rocketmq_pop_revive_in_message_total", "Checkpoints (CK) and acknowledgements (ACK) stored.",
    "topic", "consumer_group", "revive_message_type", "put_status",
)  # fmt: skip
POP_REVIVE_RETRY: Final = counter(
    "rocketmq_pop_revive_retry_messages_total",
    "Popped messages that were given out again, since nobody acknowledged them.",
    "topic", "consumer_group", "put_status",
)  # fmt: skip
POP_REVIVE_LAG: Final = gauge(
    "rocketmq_pop_revive_lag_milliseconds",
    "A COUNT, in spite of the name: records of the revive queue that are not settled; see"
    " roquet_pop_revive_lag_messages.",
    "queue_id",
)  # fmt: skip
PROXY_UP: Final = gauge(
    "rocketmq_proxy_up", "Always 1, from a proxy alone: Apache's has no other metric.",
    "proxy_mode", nodes=(NodeType.PROXY,),
)  # fmt: skip

ROCKETMQ_METRICS: Final[tuple[Metric, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
"""All of them, in this order."""

LEFT_OUT: Final[dict[str, str]] = {
    "rocketmq_half_messages": "The log does not say of which topic open half messages are;"
    " `roquet_half_messages` has all together.",
    "rocketmq_pop_buffer_scan_time_consume_milliseconds": "There is no buffer that is scanned.",
    "rocketmq_pop_revive_latency_milliseconds": "Pops in flight are in memory here: nothing is read"
    " late from the revive topic; see `rocketmq_pop_revive_lag_milliseconds`.",
    "rocketmq_pop_revive_out_message_total": "Settled pops are not read back from the revive topic;"
    " see `rocketmq_pop_revive_in_message_total`.",
    "rocketmq_topic_create_execution_time_milliseconds": (
        "`rocketmq_rpc_latency_milliseconds` has it for `update_and_create_topic`."
    ),
    "rocketmq_consumer_group_create_execution_time_milliseconds": (
        "`rocketmq_rpc_latency_milliseconds` has it for `update_and_create_subscriptiongroup`."
    ),
    "target_info": "It only names the exporter's library.",
}
"""Metrics of Apache's brokers that are not shown, and the reason."""
