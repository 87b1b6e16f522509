"""Roquet metrics: further ones that an operator needs, with their own names."""

from typing import Final

from roquet.metrics.metric import SERVERS, Metric, NodeType, counter, gauge, histogram
from roquet.metrics.rocketmq_metrics import FINISH_S

SHORT_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Bounds of short times in seconds."""

BUILD_INFO: Final = gauge(
    "roquet_build_info", "Always 1; the version of Roquet.", "version", nodes=SERVERS
)
LOOP_LAG: Final = histogram(
    "roquet_event_loop_lag_seconds",
    "How late the event loop is, measured ten times a second: requests wait for so long.",
    bounds=SHORT_S, nodes=SERVERS,
)  # fmt: skip
REQUESTS: Final = counter(
    "roquet_requests_total", "Requests by code, one-way ones too.", "request_code", nodes=SERVERS
)
REQUEST_TIME: Final = counter(
    "roquet_request_seconds_total",
    "Seconds from serving requests to their replies; requests that waited for messages do not"
    " count.",
    "request_code", nodes=SERVERS,
)  # fmt: skip
SLOW_REQUESTS: Final = counter(
    "roquet_slow_requests_total", "Requests that held the event loop for so long that it is logged."
)
CONNECTIONS: Final = gauge("roquet_connections", "Open connections of clients.", nodes=SERVERS)
OPENED_CONNECTIONS: Final = counter(
    "roquet_opened_connections_total",
    "Connections since the start, where TLS or the PROXY protocol is on: `plain` and `tls` were"
    " served, `refused` failed the handshake or the mode, `abandoned` said nothing in time.",
    "kind", nodes=SERVERS,
)  # fmt: skip
WAITING_REQUESTS: Final = gauge(
    "roquet_waiting_requests",
    "Requests that wait for their replies, pulls that wait for messages among them.", "kind",
)  # fmt: skip
WAITING_REQUESTS_LIMIT: Final = gauge(
    "roquet_waiting_requests_limit", "Requests of a kind that may wait; further ones are refused.",
    "kind",
)  # fmt: skip
QUOTA_EXCESS: Final = counter(
    "roquet_quota_excess_requests_total",
    "Requests that a quota refused or held up; quota is its name, * for one of all names.",
    "direction", "kind", "quota",
)  # fmt: skip
FLUSH_TIME: Final = histogram(
    "roquet_flush_seconds", "Seconds of a flush of the log to the disk.", bounds=SHORT_S
)
STORE_FAILED: Final = gauge(
    "roquet_store_refuses_messages", "1 while no messages are taken: the disk is full or failed."
)
DISK_USED: Final = gauge("roquet_disk_used_ratio", "Part of the disk that is in use, from 0 to 1.")
DISK_LIMIT: Final = gauge(
    "roquet_disk_refuse_ratio", "Part of the disk in use at which no messages are taken."
)
SET_ASIDE: Final = counter(
    "roquet_set_aside_messages_total", "Messages that a service could not handle and set aside.",
    "service",
)  # fmt: skip
HALF_MESSAGES: Final = gauge(
    "roquet_half_messages", "Offsets from the first open half message to the end of their queue."
)
TRANSACTION_TIME: Final = histogram(
    "roquet_transaction_seconds", "Seconds from a half message to its commit.", "topic",
    bounds=FINISH_S,
)  # fmt: skip

POP_REVIVE_LAG: Final = gauge(
    "roquet_pop_revive_lag_messages",
    "Records of a revive queue that are not settled: pops in flight, and their acknowledgements.",
    "queue_id",
)

_OF_GROUP: Final = ("consumer_group", "topic")

GROUP_ONLINE: Final = gauge(
    "roquet_group_online", "1 for a group with a member online, else 0.", "consumer_group"
)
GROUP_LAG: Final = gauge(
    "roquet_consumer_lag_messages",
    "Messages that a group has not committed, whether or not a member is online.", *_OF_GROUP,
)  # fmt: skip
GROUP_LAG_TIME: Final = gauge(
    "roquet_consumer_lag_seconds",
    "Age of the first message that a group has not committed; 0 without one.", *_OF_GROUP,
)  # fmt: skip
GROUP_IDLE: Final = gauge(
    "roquet_consumer_seconds_since_progress",
    "Seconds since a group's commits last changed, as far as pages were asked for since the start.",
    *_OF_GROUP,
)  # fmt: skip
GROUP_RETENTION: Final = gauge(
    "roquet_consumer_retention_left_seconds",
    "Seconds until the first message that a group has not committed may be deleted; absent without"
    " one.",
    *_OF_GROUP,
)  # fmt: skip
RETENTION_UNREAD: Final = counter(
    "roquet_retention_unread_messages_total",
    "Messages that retention deleted before a group had read them, and with no group those that"
    " nobody reads (younger than retention) or that waited to be delivered.",
    *_OF_GROUP,
)  # fmt: skip
REBALANCES: Final = counter(
    "roquet_rebalances_total", "Times that members of a group were told to divide its queues.",
    "consumer_group",
)  # fmt: skip
IS_MASTER: Final = gauge("roquet_broker_is_master", "1 for a master that serves, else 0.")
IN_SYNC: Final = gauge(
    "roquet_in_sync_logs", "Logs in sync, the master's among them; absent at a replica."
)
IN_SYNC_NEEDED: Final = gauge(
    "roquet_in_sync_logs_needed",
    "Logs in sync that senders wait for, or that messages are not taken without.",
)
REPLICA_LAG: Final = gauge(
    "roquet_replica_lag_bytes", "Bytes of the log that a connected replica has not reported.",
    "replica",
)  # fmt: skip
REPLICA_CONNECTED: Final = gauge(
    "roquet_replica_connected", "1 while a replica gets its master's log; absent at a master."
)
OVERFLOW: Final = counter(
    "roquet_metrics_overflow_total",
    "Counts that went to the series `other`, since a metric had too many combinations of labels.",
    nodes=SERVERS,
)  # fmt: skip
PAGE_FAULTS: Final = counter(
    "roquet_page_faults_total",
    "Page faults of the process; a major one waited for the disk.", "kind", nodes=SERVERS,
)  # fmt: skip
CPU_TIME: Final = counter(
    "roquet_cpu_seconds_total", "Processor time of the process.", nodes=SERVERS
)
UPTIME: Final = gauge(
    "roquet_uptime_seconds", "Seconds since the metrics page was started.", nodes=SERVERS
)
BROKERS: Final = gauge(
    "roquet_brokers", "Brokers that are alive here, replicas among them.",
    nodes=(NodeType.NAME_SERVER, NodeType.CONTROLLER),
)  # fmt: skip
BROKER_NAMES: Final = gauge(
    "roquet_broker_names", "Names of brokers: a master and its replicas have one.",
    nodes=(NodeType.NAME_SERVER, NodeType.CONTROLLER),
)  # fmt: skip
IS_LEADER: Final = gauge(
    "roquet_controller_is_leader",
    "1 for the controller that leads, else 0; a name server's page has it of one in its process.",
    nodes=(NodeType.CONTROLLER, NodeType.NAME_SERVER),
)  # fmt: skip
PROCESS_UP: Final = gauge(
    "roquet_process_up", "1 for a process of `roquet serve` whose metrics were read, else 0.",
    "process", nodes=(NodeType.SUPERVISOR,),
)  # fmt: skip
RPC_TIME: Final = histogram(
    "roquet_rpc_seconds",
    "Seconds from a client's gRPC request to the end of its answer; `ReceiveMessage` and"
    " `PullMessage` may wait for messages.",
    "method", "code", bounds=SHORT_S, nodes=(NodeType.PROXY,),
)  # fmt: skip
PROXY_CLIENTS: Final = gauge(
    "roquet_proxy_clients", "Clients whose settings the proxy knows.", nodes=(NodeType.PROXY,)
)
PROXY_STREAMS: Final = gauge(
    "roquet_proxy_streams", "Clients that listen to the proxy's commands.", nodes=(NodeType.PROXY,)
)
PROXY_RECEIPTS: Final = gauge(
    "roquet_proxy_receipts", "Delivered messages that the proxy keeps invisible for their clients.",
    nodes=(NodeType.PROXY,),
)  # fmt: skip

ROQUET_METRICS: Final[tuple[Metric, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
"""All of them, in this order."""
