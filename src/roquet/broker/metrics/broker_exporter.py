"""Broker exporter: the metrics page of a broker, if its settings ask for one."""

from functools import partial

from roquet.broker.broker import Broker
from roquet.broker.metrics.group_lag import GroupLagSource
from roquet.broker.metrics.inventory import add_inventory
from roquet.broker.metrics.readiness import unready_reasons
from roquet.broker.metrics.storage import add_replication, add_storage
from roquet.broker.metrics.traffic import add_events, add_traffic
from roquet.metrics.metric import NodeType
from roquet.net.limits.fair_share import FREQUENT_CODES
from roquet.net.request_meter import RequestMeter
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.observe.exporter import (
    MetricsExporter,
    NodeIdentity,
    exporter_address,
    exporter_labels,
)


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
