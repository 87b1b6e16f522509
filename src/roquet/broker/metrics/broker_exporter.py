"""Broker exporter: the metrics page of a broker, if its settings ask for one."""

from collections.abc import Iterator
from functools import partial

from roquet.broker.broker import Broker
from roquet.broker.metrics.group_lag import GroupLagSource
from roquet.broker.metrics.traffic import DISK, add_events, add_inventory, add_traffic
from roquet.metrics import rocketmq_metrics as rocketmq
from roquet.metrics import roquet_metrics as roquet
from roquet.metrics.metric import NodeType
from roquet.metrics.text_format import MetricsPage
from roquet.model.errors import StoreFull
from roquet.model.flags import Permission
from roquet.net.limits.fair_share import FREQUENT_CODES
from roquet.net.request_meter import RequestMeter
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.observe.exporter import MetricsExporter, NodeIdentity, exporter_address, exporter_labels
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


def measure(broker: Broker, router: Router, server: Server) -> MetricsExporter | None:
    """The exporter of a broker, which counts from now on; None if it is to show no metrics."""
    config, clock = broker.control.settings.config, broker.control.clock
    if (address := exporter_address(config)) is None:
        return None
    router.meter = meter = RequestMeter(clock, FREQUENT_CODES)
    broker.log.counts.counts_stored = True
    lag = GroupLagSource(broker)
    rebalances, counts = broker.coordination.rebalances, broker.log.counts
    statistics = broker.control.statistics
    exporter = MetricsExporter(
        NodeIdentity(
            node_type=NodeType.BROKER,
            node_id=config.broker_name,
            cluster=config.cluster_name,
            further=exporter_labels(config),
        ),
        address,
        clock,
        meter=meter,
        connections=lambda: len(server.peers),
        sources=(
            partial(add_inventory, broker),
            partial(add_traffic, broker),
            partial(add_events, broker),
            partial(add_storage, broker),
            partial(add_replication, broker),
            lag.add,
            server.add_openings,
        ),
        overflow=lambda: (
            counts.overflow + rebalances.overflow + lag.overflow + statistics.other_gets.times
        ),
    )
    exporter.unready = partial(unready_reasons, broker)
    return exporter


def unready_reasons(broker: Broker) -> list[str]:
    """Why clients should not be sent to this broker now; empty: they may be.

    Anybody may read the reasons, so they name no file and no client.
    """
    return list(_reasons(broker))


def _reasons(broker: Broker) -> Iterator[str]:
    control, role = broker.control, broker.replication.role.current
    config, registration = control.settings.config, control.registration
    refusal = broker.log.store.refusal
    if isinstance(refusal, StoreFull):
        yield "its disk is almost full: it takes no messages"
    elif refusal is not None:
        yield "its store takes no messages: see its log"
    if role.is_fenced:
        yield "it does not know its role: no controller, or no master, has told it"
    if not config.permission & Permission.WRITE:
        yield "it is drained: brokerPermission lets nobody send"
    if not config.permission & Permission.READ:
        yield "it is closed: brokerPermission lets nobody read"
    if config.name_servers and not registration.has_registered:
        yield "it has not told the name servers of itself yet"
    elif config.name_servers and registration.unreachable.issuperset(config.name_servers):
        yield "no name server can be told of it"
