"""BrokerConfig: the settings of a broker, one table with a field for each.

A field says the setting's type, default and meaning, and in its annotation the format of its
value, Apache's keys for it, and whether a change waits for a restart. Everything else follows:
how broker.conf and the environment are read, what changes at run time, how a broker reports its
settings, and docs/reference/settings.md.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final

import msgspec

from roquet.access.gaps import AccessGap
from roquet.broker.settings.value_formats import (
    ACCESS_GAPS,
    ADDRESS,
    ADDRESSES,
    BATCH_SIZE,
    BROKER_ID,
    BROKER_ROLE,
    BYTES,
    CLIENT_AUTH,
    COUNT,
    CREDENTIALS,
    DELAY_LEVELS,
    DELIVERY_DELAY,
    ELECTION_PRIORITY,
    FLUSH_TYPE,
    HEARTBEAT_TIMEOUT,
    HOUR,
    HOURS,
    INTERFACE,
    KEY_PASSWORD,
    LOG_LEVELS,
    MESSAGE_SIZE,
    METRIC_LABELS,
    METRICS_EXPORTER,
    MILLIS,
    PATH,
    PERMISSION,
    POP_SHARE,
    PORT,
    PORT_NUMBER,
    QUEUE_ENTRIES,
    QUOTAS,
    RATIO,
    REGION,
    REGISTER_INTERVAL,
    REPLICA_ACK,
    REQUEST_CODES,
    REQUEST_MODE,
    SOURCES,
    STREAM_ADDRESS,
    SWITCH,
    TEXT,
    TLS_MODE,
    setting,
    static,
)
from roquet.metrics.exporter_settings import EXPORTER_PORT, MetricsExporterType
from roquet.model.config_check import CheckedConfig
from roquet.model.errors import ConfigError
from roquet.model.flags import Permission
from roquet.model.topic import MASTER_ID, READ_WRITE
from roquet.net.channel import PLAIN, Security
from roquet.net.tls import ClientAuth, KeyPassword, ServerTls, Tls, TlsMode
from roquet.rules.delay.delay_levels import DEFAULT_LEVELS
from roquet.rules.delay.timer import MAX_DELAY_MS
from roquet.rules.election.elect import PRIORITY_DEFAULT
from roquet.rules.quota import Quota
from roquet.rules.replication.acknowledgement import BrokerRole, ReplicaAck
from roquet.wire.calls.bodies import PULL
from roquet.wire.signing import Credentials, Signer

MESSAGE_SIZE_MAX: Final = 4 * 1024 * 1024
"""The genuine default for one message's body, or a whole batch."""

_READ: Final = int(Permission.READ)
_WRITE: Final = int(Permission.WRITE)
"""As plain numbers: every send and every pull reads them."""


class BrokerConfig(CheckedConfig, frozen=True, kw_only=True):
    """How one broker runs. Times are in ms, sizes in bytes."""

    broker_name: Annotated[str, static(TEXT, "brokerName")] = "broker-a"
    """The name under which name servers know this broker; read from a file it is the host's."""
    cluster_name: Annotated[str, static(TEXT, "brokerClusterName")] = "DefaultCluster"
    """The cluster that this broker belongs to."""
    host: Annotated[str, static(TEXT, "bindAddress")] = "0.0.0.0"
    """The interface to listen on."""
    port: Annotated[int, static(PORT_NUMBER, "listenPort")] = PORT
    """The port for clients; 0 takes any free one."""
    vip_port: Annotated[bool, static(SWITCH)] = True
    """Whether the broker also listens on the port two below `port`, which clients older than 4.5.1
    use. If that port is taken, a warning says so once; with port 0 there is none. Give brokers on
    one machine ports at least three apart, as with Apache's."""
    advertise: Annotated[str | None, static(ADDRESS, "brokerIP1")] = None
    """HOST[:PORT] that clients are told; None finds a routable address of this machine."""
    broker_role: Annotated[BrokerRole, static(BROKER_ROLE, "brokerRole")] = BrokerRole.ASYNC_MASTER
    """ASYNC_MASTER answers a send once it has the message itself, SYNC_MASTER once
    `in_sync_replicas` logs have it; SLAVE is a replica, which copies the log of the master of its
    name and takes no messages of clients."""
    broker_id: Annotated[int, static(BROKER_ID, "brokerId")] = MASTER_ID
    """The id among the brokers of its name: 0 is the master, replicas have 1 and more."""
    name_servers: Annotated[tuple[str, ...], setting(ADDRESSES, "namesrvAddr")] = ()
    """Name servers at which the broker registers its topics; without any it serves alone."""
    store_dir: Annotated[Path | None, static(PATH, "storePathRootDir")] = None
    """The directory of messages and tables; None keeps everything in memory."""
    log_path: ClassVar[Annotated[None, static(PATH, "storePathCommitLog")]] = None
    """The directory of the commit log; it must be below `store_dir`."""
    sync_flush: Annotated[bool, setting(FLUSH_TYPE, "flushDiskType")] = False
    """Acknowledge only what is on the disk, and show consumers nothing else."""
    sync_flush_timeout: Annotated[int, setting(MILLIS, "syncFlushTimeout")] = 5_000
    """Longest time that a send waits for the disk; after it the answer says that the message is
    stored but not flushed yet."""
    flush_interval: Annotated[int, setting(MILLIS, "flushIntervalCommitLog")] = 500
    """How often the log is flushed to the disk when no send waits for that."""
    auto_create_topic: Annotated[bool, setting(SWITCH, "autoCreateTopicEnable")] = True
    """Whether the first message to an unknown topic creates it."""
    auto_create_group: Annotated[bool, setting(SWITCH, "autoCreateSubscriptionGroup")] = True
    """Whether an unknown group may consume: it is created then."""
    check_message_types: Annotated[bool, setting(SWITCH, "enableTopicMessageTypeCheck")] = False
    """Whether a message is refused whose type (NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY) is not
    that of its topic's attribute `message.type`; the key is that of Apache's proxy."""
    priority_order_asc: Annotated[bool, setting(SWITCH, "priorityOrderAsc")] = True
    """Whether 0 is the lowest priority; otherwise it is the highest."""
    default_queue_count: Annotated[int, static(COUNT, "defaultTopicQueueNums")] = 8
    """Queues of a topic that its first message creates, at most."""
    max_message_size: Annotated[int, setting(MESSAGE_SIZE, "maxMessageSize")] = MESSAGE_SIZE_MAX
    """The longest body of one message, or of a whole batch."""
    message_delay_levels: Annotated[tuple[int, ...], static(DELAY_LEVELS, "messageDelayLevel")] = (
        DEFAULT_LEVELS
    )
    """Delay of each level; level 1 is the first."""
    long_polling: Annotated[bool, setting(SWITCH, "longPollingEnable")] = True
    """Whether a pull waits for messages as long as its client says, or `short_polling` at most."""
    short_polling: Annotated[int, setting(MILLIS, "shortPollingTimeMills")] = 1_000
    """How long a pull waits at most while `long_polling` is off."""
    notify_members: Annotated[bool, setting(SWITCH, "notifyConsumerIdsChangedEnable")] = True
    """Whether members of a group are told at once when another one comes or goes."""
    server_side_reset: Annotated[bool, setting(SWITCH, "useServerSideResetOffset")] = True
    """Whether this broker resets a group's offsets itself; otherwise it tells the members to."""
    default_request_mode: Annotated[str, setting(REQUEST_MODE, "defaultMessageRequestMode")] = PULL
    """Whether a group pulls or pops by default, where the broker allocates its queues."""
    default_pop_share_queues: Annotated[int, setting(POP_SHARE, "defaultPopShareQueueNum")] = -1
    """Number of other members whose queues a popping member takes from, too; 0 and less: all."""
    retry_topic_v2: Annotated[bool | None, setting(SWITCH, "enableRetryTopicV2")] = None
    """Whether popped messages that failed wait in `%RETRY%GROUP+TOPIC`, which belongs to one group
    and topic, or in `%RETRY%GROUP_TOPIC`, the older name, which Apache's brokers use without
    enableRetryTopicV2 and which others may share. Both are always read. None takes the older name
    if a broker that gives no topic ids, as Apache's, has written the directory."""
    property_filter: Annotated[bool, setting(SWITCH, "enablePropertyFilter")] = True
    """Whether consumers may filter by SQL92 expressions; the genuine broker's default is not to."""
    sql_compatibility: Annotated[bool, setting(SWITCH)] = False
    """Whether expressions that the genuine broker misreads are misread here, too, not refused."""
    trace_topic: Annotated[bool, static(SWITCH, "traceTopicEnable")] = False
    """Whether there is a topic for message traces."""
    store_reply_messages: Annotated[bool, setting(SWITCH, "storeReplyMessageEnable")] = True
    """Whether replies to requests are stored as well, after they were pushed to the requester."""
    reject_transactions: Annotated[bool, setting(SWITCH, "rejectTransactionMessage")] = False
    """Whether half messages are refused."""
    transaction_timeout: Annotated[int, setting(MILLIS, "transactionTimeOut")] = 6_000
    """Age at which a half message without an end is first checked at its producer."""
    transaction_check_interval: Annotated[int, setting(MILLIS, "transactionCheckInterval")] = 30_000
    """Period between two checks of half messages without an end."""
    transaction_check_max: Annotated[int, setting(COUNT, "transactionCheckMax")] = 15
    """Checks of one half message before it is given up."""
    transaction_op_interval: Annotated[int, setting(MILLIS, "transactionOpBatchInterval")] = 500
    """How long the end of a transaction may be recorded in memory alone: an Apache broker that
    takes over after a kill would check it again. Apache's default is 3,000."""
    transaction_op_size: Annotated[int, setting(BYTES, "transactionOpMsgMaxSize")] = 4_096
    """Bytes of recorded ends that are stored at once."""
    timer_max_delay: Annotated[int, setting(DELIVERY_DELAY, "timerMaxDelaySec")] = MAX_DELAY_MS
    """The farthest delivery time that a message may have."""
    recall_message: Annotated[bool, setting(SWITCH, "recallMessageEnable")] = False
    """Whether producers may take messages back before their delivery time."""
    recall_key_with_topic: Annotated[bool, setting(SWITCH, "appendTopicForTimerDeleteKey")] = False
    """Whether a note that takes a timed message back names its topic in front of its key: a genuine
    broker that takes over the directory and has this set looks for both."""
    permission: Annotated[int, setting(PERMISSION, "brokerPermission")] = READ_WRITE
    """Permission of clients on this broker: 2 write, 4 read, 6 both, 0 nothing."""
    region: Annotated[str, setting(REGION, "regionId")] = "DefaultRegion"
    """Name of the region, in every answer to a send and in messages that are not batched."""
    trace_on: Annotated[bool, setting(SWITCH, "traceOn")] = True
    """Whether clients are told, in answers and by messages, that they may send traces."""
    read_internal_topics: Annotated[bool, setting(SWITCH)] = False
    """Whether clients may read messages that are not delivered yet where they wait: half messages
    (RMQ_SYS_TRANS_HALF_TOPIC and its op topic), delayed (SCHEDULE_TOPIC_XXXX) and timed ones
    (rmq_sys_wheel_timer). For an operator who inspects them; Apache RocketMQ always allows it."""
    pull_count_memory: Annotated[int, setting(COUNT, "maxTransferCountOnMessageInMemory")] = 32
    """Messages in one reply to a pull, where they are likely to be in memory still. Clients in
    Python name limits of their own."""
    pull_bytes_memory: Annotated[int, setting(BYTES, "maxTransferBytesOnMessageInMemory")] = (
        256 * 1024
    )
    """Bytes of such a reply; one message is given whatever its size."""
    pull_count_disk: Annotated[int, setting(COUNT, "maxTransferCountOnMessageInDisk")] = 8
    """Messages in one reply to a pull, where they are likely to be read from the disk."""
    pull_bytes_disk: Annotated[int, setting(BYTES, "maxTransferBytesOnMessageInDisk")] = 64 * 1024
    """Bytes of such a reply."""
    memory_share: Annotated[float, setting(RATIO, "accessMessageInMemoryMaxRatio")] = 0.4
    """The share of the machine's memory by which messages before the log's end are taken to be in
    memory: it decides which of these limits hold."""
    query_count_max: Annotated[int, setting(COUNT, "maxMsgsNumBatch")] = 64
    """Messages in one answer to a query by key."""
    save_interval: Annotated[int, setting(MILLIS, "flushConsumerOffsetInterval")] = 5_000
    """How often the groups' progress is saved."""
    register_interval: Annotated[int, setting(REGISTER_INTERVAL, "registerNameServerPeriod")] = (
        30_000
    )
    """Period between two registrations at the name servers, 10 s to 60 s."""
    client_silence: Annotated[int, setting(MILLIS, "channelExpiredTimeout")] = 120_000
    """Time without a heartbeat after which a client is removed."""
    log_file_size: Annotated[
        int, static(BYTES, "mappedFileSizeCommitLog", "mapedFileSizeCommitLog")
    ] = 1024 * 1024 * 1024
    """Bytes of one file of the log; a directory keeps the size that it was made with."""
    queue_file_entries: Annotated[
        int, static(QUEUE_ENTRIES, "mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue")
    ] = 300_000
    """Entries of one file of a queue, 20 bytes each; genuine settings count the bytes."""
    index_slots: Annotated[int, static(COUNT, "maxHashSlotNum")] = 5_000_000
    """Hash slots of one file of the key index."""
    index_entries: Annotated[int, static(COUNT, "maxIndexNum")] = 20_000_000
    """Keys that one file of the index holds."""
    retention: Annotated[int, setting(HOURS, "fileReservedTime")] = 72 * 3_600_000
    """How long messages are kept, read or not."""
    delete_hour: Annotated[int, setting(HOUR, "deleteWhen")] = 4
    """The local hour of the day in which old files are deleted."""
    expire_ratio: Annotated[float, setting(RATIO, "diskMaxUsedSpaceRatio")] = 0.75
    """Share of the disk in use above which old files are deleted at any hour."""
    force_ratio: Annotated[float, setting(RATIO, "diskSpaceCleanForciblyRatio")] = 0.85
    """Share of the disk in use above which the oldest files are deleted, whatever their age, as far
    as all groups have read them."""
    force_unread: Annotated[bool, setting(SWITCH, "cleanFileForciblyEnable")] = False
    """Whether files are deleted then whose messages a group has not read, or that wait: as Apache's
    broker does, which loses them. Without it they stay for `retention`, and at `refuse_ratio` no
    message is taken."""
    refuse_ratio: Annotated[float, setting(RATIO, "diskSpaceWarningLevelRatio")] = 0.90
    """Share of the disk in use above which messages are refused."""
    free_min: Annotated[int | None, setting(BYTES)] = None
    """Bytes that must stay free, instead of the ratios."""
    send_capacity: Annotated[int, setting(COUNT, "sendThreadPoolQueueCapacity")] = 10_000
    """Sends that may wait for the disk; further ones are refused: the broker is busy."""
    pull_capacity: Annotated[int, setting(COUNT, "pullThreadPoolQueueCapacity")] = 100_000
    """Pulls and pops that may wait for messages: each costs about 4 KB."""
    ack_capacity: Annotated[int, setting(COUNT, "ackThreadPoolQueueCapacity")] = 100_000
    """Acknowledgements that may wait."""
    heartbeat_capacity: Annotated[int, setting(COUNT, "heartbeatThreadPoolQueueCapacity")] = 50_000
    """Heartbeats that may wait."""
    transaction_capacity: Annotated[int, setting(COUNT, "endTransactionPoolQueueCapacity")] = (
        100_000
    )
    """Ends of transactions that may wait."""
    query_capacity: Annotated[int, setting(COUNT, "queryThreadPoolQueueCapacity")] = 20_000
    """Queries by key or id that may wait."""
    admin_capacity: Annotated[int, setting(COUNT, "adminBrokerThreadPoolQueueCapacity")] = 10_000
    """Everything else that may wait, for another client or a disk."""
    fast_failure: Annotated[bool, setting(SWITCH, "brokerFastFailureEnable")] = True
    """Whether requests that waited too long behind others are refused: the broker is busy."""
    send_wait_max: Annotated[int, setting(MILLIS, "waitTimeMillsInSendQueue")] = 200
    """The time within which a send is looked at, or refused."""
    pull_wait_max: Annotated[int, setting(MILLIS, "waitTimeMillsInPullQueue")] = 5_000
    """The time within which a pull is looked at, or refused."""
    ack_wait_max: Annotated[int, setting(MILLIS, "waitTimeMillsInAckQueue")] = 3_000
    """The time within which an acknowledgement is looked at, or refused."""
    heartbeat_wait_max: Annotated[int, setting(MILLIS, "waitTimeMillsInHeartbeatQueue")] = 31_000
    """The time within which a heartbeat is looked at, or refused."""
    transaction_wait_max: Annotated[int, setting(MILLIS, "waitTimeMillsInTransactionQueue")] = 3_000
    """The time within which the end of a transaction is looked at, or refused."""
    admin_wait_max: Annotated[int, setting(MILLIS, "waitTimeMillsInAdminBrokerQueue")] = 5_000
    """The time within which any other request is looked at, or refused."""
    tls_cert: Annotated[Path | None, static(PATH, "tls.server.certPath")] = None
    """File with the certificate that clients are shown; with it the broker takes TLS."""
    tls_mode: Annotated[TlsMode | None, static(TLS_MODE, "tls.server.mode")] = None
    """Which connections are taken: `disabled` plain ones, `permissive` both on the same ports,
    `enforcing` those with TLS alone. None is `enforcing` with `tls_cert`, and else `disabled`."""
    tls_key: Annotated[Path | None, static(PATH, "tls.server.keyPath")] = None
    """File with the private key of `tls_cert`; None: it is in the same file."""
    tls_key_password: Annotated[
        KeyPassword | None, static(KEY_PASSWORD, "tls.server.keyPassword")
    ] = None
    """Password of that key."""
    tls_client_ca: Annotated[Path | None, static(PATH, "tls.server.trustCertPath")] = None
    """Certificate authority of clients' certificates; None asks for none."""
    tls_client_auth: Annotated[ClientAuth, static(CLIENT_AUTH, "tls.server.need.client.auth")] = (
        ClientAuth.REQUIRE
    )
    """With `tls_client_ca`: whether a certificate is asked for (`none`, `optional`, `require`)."""
    certificate_users: Annotated[bool, static(SWITCH)] = False
    """With `authentication_enabled`: whether a request that is not signed comes from the user whom
    the client's certificate names, by its common name or else its first alternative name."""
    proxy_protocol_from: Annotated[tuple[str, ...], static(SOURCES)] = ()
    """IP addresses and CIDR blocks of load balancers that begin each connection with a header of
    the PROXY protocol, version 1 or 2: the client's address in it counts. It is believed from
    nobody else."""
    tls_enable: Annotated[bool | None, static(SWITCH, "tls.enable")] = None
    """Whether this broker calls name servers, controllers and other brokers by TLS, and copies a
    master's log by TLS. None does with `tls_ca`."""
    tls_ca: Annotated[Path | None, static(PATH, "tls.client.trustCertPath")] = None
    """Certificate authority of those servers; None takes the authorities of this machine."""
    tls_verify: Annotated[bool, static(SWITCH, "tls.client.authServer")] = True
    """Whether their certificates must be trusted."""
    tls_check_host: Annotated[bool, static(SWITCH)] = True
    """Whether their certificates must be for the address that is called; Apache's servers never
    check that."""
    tls_client_cert: Annotated[Path | None, static(PATH, "tls.client.certPath")] = None
    """Certificate that this broker shows to those servers; None shows `tls_cert`."""
    tls_client_key: Annotated[Path | None, static(PATH, "tls.client.keyPath")] = None
    """The private key of `tls_client_cert`."""
    tls_client_key_password: Annotated[
        KeyPassword | None, static(KEY_PASSWORD, "tls.client.keyPassword")
    ] = None
    """Password of that file."""
    tls_properties: Annotated[Path | None, static(PATH, "tls.config.file")] = None
    """A `tls.properties` of Apache RocketMQ: it wins over this file, and without a mode in it
    `permissive` holds."""
    ha_port: Annotated[int, static(PORT_NUMBER, "haListenPort")] = 0
    """Port on which replicas get the log, by TLS where clients need it (Apache's replicas cannot);
    0 takes the one above `port`."""
    ha_replicas: Annotated[tuple[str, ...], setting(SOURCES)] = ()
    """IP addresses and CIDR blocks, with commas between them, whose replicas get the log. Without
    any, all do, but with `authentication_enabled` only those on this machine, unless replicas prove
    who they are (`ha_plain_replicas`) or must show certificates."""
    ha_plain_replicas: Annotated[tuple[str, ...], setting(SOURCES)] = ()
    """IP addresses and CIDR blocks, with commas between them, whose replicas get the log without a
    proof that they know `inner_credentials`: Apache's cannot give one. With those credentials and
    `authentication_enabled` or `tls_cert`, all others must."""
    ha_master: Annotated[str | None, setting(STREAM_ADDRESS, "haMasterAddress")] = None
    """HOST:PORT from which a replica gets the log; None takes what name servers say."""
    ha_heartbeat_interval: Annotated[int, setting(MILLIS, "haSendHeartbeatInterval")] = 5_000
    """Longest silence between master and replica before a heartbeat is sent; less than
    `ha_housekeeping_interval`."""
    ha_housekeeping_interval: Annotated[int, setting(MILLIS, "haHousekeepingInterval")] = 20_000
    """Silence after which a master or replica counts as gone and its connection is closed."""
    ha_batch_size: Annotated[int, setting(BATCH_SIZE, "haTransferBatchSize")] = 32 * 1024
    """Bytes of the log in one frame to a replica, at most."""
    ha_gap_max: Annotated[int, setting(BYTES, "haMaxGapNotInSync")] = 256 * 1024 * 1024
    """A replica that is behind by so many bytes does not count as in sync."""
    ha_flow_control: Annotated[bool, setting(SWITCH, "haFlowControlEnable")] = False
    """Whether each replica gets no more than `ha_bytes_per_second` of the log."""
    ha_bytes_per_second: Annotated[int, setting(BYTES, "maxHaTransferByteInSecond")] = (
        100 * 1024 * 1024
    )
    """Bytes of the log for one replica in a second, with `ha_flow_control`."""
    in_sync_replicas: Annotated[int, setting(COUNT, "inSyncReplicas")] = 1
    """Logs that have to hold a message before a SYNC_MASTER answers its sender, its own among them:
    1 waits for no replica."""
    min_in_sync_replicas: Annotated[int | None, setting(COUNT, "minInSyncReplicas")] = None
    """With fewer logs in sync messages are refused, where roles may change. None is 2 with
    `controller_mode`, so that no message is on the master alone, and else 1."""
    auto_in_sync_replicas: Annotated[bool, setting(SWITCH, "enableAutoInSyncReplicas")] = False
    """Whether fewer than `in_sync_replicas` are enough while fewer are in sync, where roles may
    change; never fewer than `min_in_sync_replicas`."""
    slave_timeout: Annotated[int, setting(MILLIS, "slaveTimeout")] = 3_000
    """Longest time that a send waits for replicas; after it the answer says that the message is
    stored, but not by as many."""
    slave_read_enable: Annotated[bool, setting(SWITCH, "slaveReadEnable")] = False
    """Whether consumers may read from replicas: a master sends those to one that are so far behind
    that their messages are on the disk alone (`memory_share`)."""
    offset_check_in_slave: Annotated[bool, setting(SWITCH, "offsetCheckInSlave")] = False
    """Whether a replica corrects a consumer's wrong offset; else the consumer asks the master."""
    replica_ack: Annotated[ReplicaAck, setting(REPLICA_ACK)] = ReplicaAck.APPENDED
    """When this broker, as a replica, acknowledges the log: `appended` in memory, as Apache's does,
    or `flushed` to the disk."""
    acting_master: Annotated[bool, static(SWITCH, "enableSlaveActingMaster")] = False
    """Where roles are fixed: whether the replica with the lowest id stands in for a master that is
    away, if all brokers of the name and their name servers (`supportActingMaster`) say so:
    consumers read, commit and lock there. A master that returns takes over what they committed
    before it takes messages. A SYNC_MASTER refuses messages while fewer than `in_sync_replicas`
    logs are in sync."""
    controller_mode: Annotated[bool, static(SWITCH, "enableControllerMode")] = False
    """Whether a controller gives this broker its role and id: `broker_role` and `broker_id` have no
    effect then."""
    controllers: Annotated[tuple[str, ...], setting(ADDRESSES, "controllerAddr")] = ()
    """HOST:PORT of each controller."""
    all_ack_in_sync_set: Annotated[bool, static(SWITCH, "allAckInSyncStateSet")] = True
    """With `controller_mode`: whether a send is answered once the whole sync-state set has the
    message. Otherwise `in_sync_replicas` logs are enough, and a message may be lost that was
    acknowledged, when a member that lacks it is elected. Apache's default is false: there, even the
    master alone is enough."""
    controller_poll_interval: Annotated[int, setting(MILLIS, "syncBrokerMetadataPeriod")] = 5_000
    """How often the controller is asked who leads; it also says so itself."""
    broker_heartbeat_interval: Annotated[int, setting(MILLIS, "brokerHeartbeatInterval")] = 1_000
    """How often the controller gets a heartbeat, less than `controller_heartbeat_timeout`; from a
    master four times in a lease at least."""
    controller_heartbeat_timeout: Annotated[
        int, setting(HEARTBEAT_TIMEOUT, "controllerHeartBeatTimeoutMills")
    ] = 3_000
    """Silence after which the controller takes this broker for dead, 1 s at least. A killed process
    is noticed at once, by its connection; this is for machines that hang. Apache's default is
    10,000."""
    sync_set_check_interval: Annotated[int, setting(MILLIS, "checkSyncStateSetPeriod")] = 5_000
    """How often a master looks for members of the sync-state set that are too long behind."""
    ha_behind_max: Annotated[int, setting(MILLIS, "haMaxTimeSlaveNotCatchup")] = 15_000
    """A member that has not had all of the master's log for so long leaves the set, at the next
    look (`sync_set_check_interval`). Longer than `ha_heartbeat_interval`: an idle member reports
    that often."""
    async_learner: Annotated[bool, static(SWITCH, "asyncLearner")] = False
    """Whether this broker only learns: it gets the log, but is never in the set nor elected."""
    sync_from_last_file: Annotated[bool, static(SWITCH, "syncFromLastFile")] = False
    """Whether an empty replica begins with the last file of its master's log, not the first one. It
    counts as any other member afterwards: once it is elected nobody can read older messages there,
    acknowledged ones among them. With `async_learner` too it is never elected."""
    election_priority: Annotated[int, static(ELECTION_PRIORITY, "brokerElectionPriority")] = (
        PRIORITY_DEFAULT
    )
    """Among brokers with equal logs the one with the lower number is elected."""
    trust_log: Annotated[bool, static(SWITCH)] = False
    """With `controller_mode`: whether this broker may be elected after its machine was lost, though
    its log may lack what was not flushed. It waits for a master without such a loss otherwise; set
    this when there is none, since all machines lost their power at once."""
    epoch_file: Annotated[Path | None, static(PATH, "storePathEpochFile")] = None
    """File of the log's epochs; None is `epochFileCheckpoint` in `store_dir`."""
    identity_file: Annotated[Path | None, static(PATH, "storePathBrokerIdentity")] = None
    """File of the id that the controller gave; None is `brokerIdentity` in `store_dir`."""
    metrics_exporter: Annotated[
        MetricsExporterType, static(METRICS_EXPORTER, "metricsExporterType")
    ] = MetricsExporterType.DISABLE
    """`PROM` shows metrics for Prometheus at `http://HOST:PORT/metrics`, `DISABLE` collects none;
    `OTLP_GRPC` and `LOG` have no effect here."""
    metrics_port: Annotated[int, static(PORT_NUMBER, "metricsPromExporterPort")] = EXPORTER_PORT
    """Port of the metrics page; 0 takes any free one. Whoever reaches it may read it: it names
    topics and groups, and shows no message."""
    metrics_host: Annotated[str, static(INTERFACE, "metricsPromExporterHost")] = ""
    """The interface of the metrics page; `host` if empty."""
    metrics_label: Annotated[str, static(METRIC_LABELS, "metricsLabel")] = ""
    """Further labels of all metrics, as `zone:a,rack:7`."""
    log_levels: Annotated[str, setting(LOG_LEVELS)] = ""
    """Levels of loggers (DEBUG, INFO, WARNING, ERROR), as `INFO` for all or
    `WARNING,roquet.net:DEBUG`; empty: those that the process was started with."""
    authentication_enabled: Annotated[bool, static(SWITCH, "authenticationEnabled")] = False
    """Whether each request must be signed by a known user."""
    authorization_enabled: Annotated[bool, static(SWITCH, "authorizationEnabled")] = False
    """Whether users need a policy for what they do; only with `authentication_enabled`."""
    initial_user: Annotated[Credentials | None, static(CREDENTIALS, "initAuthenticationUser")] = (
        None
    )
    """The first super user, as JSON with `username` and `password`: created at the start if no user
    has that name. Changing the password here later has no effect."""
    inner_credentials: Annotated[
        Credentials | None, static(CREDENTIALS, "innerClientAuthenticationCredentials")
    ] = None
    """Credentials with which this broker signs its own requests to name servers, brokers and
    controllers, as JSON with `accessKey` and `secretKey`: a super user is made of them at the start
    if the name is unknown."""
    authentication_whitelist: Annotated[
        tuple[int, ...], static(REQUEST_CODES, "authenticationWhitelist")
    ] = ()
    """Request codes that need no signature, with commas between them."""
    authorization_whitelist: Annotated[
        tuple[int, ...], static(REQUEST_CODES, "authorizationWhitelist")
    ] = ()
    """Request codes that need no policy, with commas between them."""
    quotas: Annotated[tuple[Quota, ...], setting(QUOTAS)] = ()
    """Messages and bytes a second that users, topics and client addresses may send and fetch, each
    at this broker: `topic:* send 5000/s; user:batch send 200/s 1MiB/s; client:* fetch 10MiB/s`. A
    quota of a name comes before that of `*`."""
    plain_acl_file: Annotated[Path | None, static(PATH)] = None
    """File `plain_acl.yml` of Apache RocketMQ 4 whose accounts are users of this broker, too; read
    again when it changes. What has no equal is logged, as `roquet acl migrate` says it."""
    access_compatibility: Annotated[tuple[AccessGap, ...], static(ACCESS_GAPS)] = ()
    """Checks that Apache's broker does not make and that are left out here, too, for tools that
    rely on it: codes, messages, transaction_checks, replica_log, policies, passwords, with commas
    between them, or `true` for all."""
    unused: Mapping[str, str] = {}
    """Settings of Apache RocketMQ that were given and have no effect here; shown as they are."""
    source: Path | None = None
    """The settings file; changes made while the broker runs are written to it."""

    @property
    def server_tls(self) -> ServerTls | None:
        """How connections are taken; None without TLS."""
        if self.tls_cert is None:
            return None
        return ServerTls(
            cert=self.tls_cert,
            key=self.tls_key,
            key_password=self.tls_key_password,
            client_ca=self.tls_client_ca,
            client_auth=self.tls_client_auth,
            mode=self.tls_mode or TlsMode.ENFORCING,
        )

    @property
    def requires_certificates(self) -> bool:
        """Whether every client, and every replica, must show a trusted certificate."""
        return (tls := self.server_tls) is not None and tls.requires_certificates

    @property
    def serves_any_replica(self) -> bool:
        """Whether a replica at any address gets the log, if `ha_replicas` names none."""
        is_open = not self.authentication_enabled or self._opens_log
        return is_open or self.requires_certificates or self.proves_replicas

    @property
    def proves_replicas(self) -> bool:
        """Whether replicas prove that they are some: this one to its master, and others to it."""
        is_closed = self.authentication_enabled or self.server_tls is not None
        return is_closed and self.inner_credentials is not None and not self._opens_log

    @property
    def _opens_log(self) -> bool:
        return AccessGap.REPLICA_LOG in self.access_compatibility

    @property
    def calls_tls(self) -> Tls | None:
        """TLS of this broker's own calls; None: they are plain."""
        if not (self.tls_ca if self.tls_enable is None else self.tls_enable):
            return None
        cert, key, password = self.tls_cert, self.tls_key, self.tls_key_password
        if self.tls_client_cert is not None:
            cert, key = self.tls_client_cert, self.tls_client_key
            password = self.tls_client_key_password
        return Tls(
            ca=self.tls_ca,
            cert=cert,
            key=key,
            key_password=password.text if password else None,
            check_host=self.tls_check_host,
            verify=self.tls_verify,
        )

    def calls(self) -> Security:
        """How this broker calls name servers and other brokers."""
        credentials, tls = self.inner_credentials, self.calls_tls
        signer = None if credentials is None else Signer(credentials)
        if tls is None:
            return PLAIN if signer is None else Security(signer=signer)
        return Security(context=tls.context(), signer=signer)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_in_sync_replicas is None:
            least = 2 if self.controller_mode else 1
            msgspec.structs.force_setattr(self, "min_in_sync_replicas", least)
        if self.authorization_enabled and not self.authentication_enabled:
            raise ConfigError(
                "authorizationEnabled without authenticationEnabled: anybody could name any user; "
                "set both"
            )
        if self.plain_acl_file is not None and not self.authorization_enabled:
            raise ConfigError(
                "plain_acl_file without authorizationEnabled: its permissions would not count; set "
                "authenticationEnabled=true and authorizationEnabled=true"
            )
        if self.tls_cert is None and self.tls_mode not in (None, TlsMode.DISABLED):
            raise ConfigError(f"tls.server.mode={self.tls_mode} needs a certificate: set tls_cert")
        if self.certificate_users and self.tls_client_ca is None:
            raise ConfigError("certificate_users needs tls_client_ca, which says whom to believe")
        if not self.controller_mode:
            check_role(self.broker_role, self.broker_id)
        elif not self.controllers:
            raise ConfigError(
                "enableControllerMode asks for controllers: name them in controllerAddr "
                "(controllers), as HOST:PORT;HOST:PORT"
            )
        self._check_silences()

    def _check_silences(self) -> None:
        """ConfigError where heartbeats come no sooner than their lack is noticed."""
        check_silence(
            "haSendHeartbeatInterval", self.ha_heartbeat_interval,
            "haHousekeepingInterval", self.ha_housekeeping_interval,
            "connections between master and replicas would be closed again and again",
        )  # fmt: skip
        if self.controller_mode:
            check_silence(
                "brokerHeartbeatInterval", self.broker_heartbeat_interval,
                "controllerHeartBeatTimeoutMills", self.controller_heartbeat_timeout,
                "the controller would take a broker that lives for dead",
            )  # fmt: skip

    @property
    def in_sync_replicas_min(self) -> int:
        """`min_in_sync_replicas`, which is never None once the settings are made."""
        assert self.min_in_sync_replicas is not None, "the settings are made"
        return self.min_in_sync_replicas

    @property
    def has_acting_master(self) -> bool:
        """Whether a replica stands in for a master that is away: only where roles are fixed."""
        return self.acting_master and not self.controller_mode

    @property
    def readable(self) -> bool:
        """Whether consumers may read at all."""
        return self.permission & _READ != 0

    @property
    def writable(self) -> bool:
        """Whether producers may write at all."""
        return self.permission & _WRITE != 0


def check_role(role: BrokerRole, broker_id: int) -> None:
    """ConfigError for an id that does not belong to the role."""
    if role is BrokerRole.SLAVE and broker_id <= MASTER_ID:
        raise ConfigError(
            f"brokerId={broker_id} is the master's, and brokerRole is SLAVE: give this replica "
            "brokerId=1, or a higher number that no other broker of its name has"
        )
    if role is not BrokerRole.SLAVE and broker_id != MASTER_ID:
        raise ConfigError(
            f"brokerId={broker_id} is a replica's, and brokerRole is {role}: write brokerId=0 for "
            "a master, or brokerRole=SLAVE for a replica"
        )


def check_silence(
    interval_key: str, interval_ms: int, timeout_key: str, timeout_ms: int, effect: str
) -> None:
    """ConfigError for an interval of heartbeats that is not shorter than its timeout."""
    if interval_ms >= timeout_ms:
        shorter_ms, longer_ms = max(timeout_ms // 3, 1), interval_ms * 3
        raise ConfigError(
            f"{interval_key}={interval_ms} is not less than {timeout_key}={timeout_ms}, and "
            f"{effect}: set {interval_key} to {shorter_ms} or less, or {timeout_key} to "
            f"{longer_ms} or more"
        )
