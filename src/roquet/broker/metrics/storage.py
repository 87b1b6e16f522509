"""Storage: the log, the disk, flushes and replicas of a broker."""

from roquet.broker.broker import Broker
from roquet.broker.metrics.traffic import DISK
from roquet.metrics import rocketmq_metrics as rocketmq
from roquet.metrics import roquet_metrics as roquet
from roquet.metrics.text_format import MetricsPage
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.wire.records.record import decode


def add_storage(broker: Broker, page: MetricsPage) -> None:
    """Add how full the disk is, and how far flushes and the key index are behind."""
    store, config = broker.log.store, broker.control.settings.config
    page.add(rocketmq.STORAGE_SIZE, store.disk.total - store.disk.free, *DISK)
    page.add(rocketmq.FLUSH_BEHIND, store.end_position - store.flushed_position, *DISK)
    page.add(rocketmq.DISPATCH_BEHIND, store.end_position - store.indexed_position, *DISK)
    if (first := store.message_at(store.begin_position)) is not None:
        age_ms = broker.control.clock.now_ms() - decode(first).stored_ms
        page.add(rocketmq.RESERVE_TIME, max(0, age_ms), *DISK)
    page.add_histogram(roquet.FLUSH_TIME, broker.log.flush.times_s)
    page.add(roquet.STORE_FAILED, int(store.refusal is not None or store.failure is not None))
    page.add(roquet.DISK_USED, store.disk.ratio)
    page.add(roquet.DISK_LIMIT, config.refuse_ratio)


def add_replication(broker: Broker, page: MetricsPage) -> None:
    """Add the role, logs in sync, and how far replicas are behind."""
    replication, config = broker.replication, broker.control.settings.config
    role = replication.role.current
    page.add(roquet.IS_MASTER, int(role.is_active))
    if not role.is_master:
        page.add(roquet.REPLICA_CONNECTED, int(replication.stream_client.facts.is_connected))
        return
    replicas = replication.stream_server.facts
    mode = replication.controller_mode
    in_sync = 1 + sum(replica.is_in_sync for replica in replicas)
    page.add(roquet.IN_SYNC, in_sync if mode is None else len(mode.sync_set.state.members))
    waits = config.in_sync_replicas if role.role is BrokerRole.SYNC_MASTER else 1
    page.add(roquet.IN_SYNC_NEEDED, max(waits, config.in_sync_replicas_min))
    for replica in replicas:
        page.add(roquet.REPLICA_LAG, replica.lag, replica.address)
