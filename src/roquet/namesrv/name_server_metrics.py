"""Name server metrics: brokers that a name server knows, and its requests."""

from functools import partial

from roquet.metrics import roquet_metrics as roquet
from roquet.metrics.metric import NodeType
from roquet.metrics.text_format import MetricsPage
from roquet.model.settings import join_address
from roquet.namesrv.state import NameServerState
from roquet.net.address import is_specific, routable_address
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


def measure(state: NameServerState, router: Router, server: Server) -> MetricsExporter | None:
    """The exporter of a name server, which counts from now on; None if it is to show no metrics."""
    if (address := exporter_address(state.config)) is None:
        return None
    router.meter = meter = RequestMeter(state.clock, FREQUENT_CODES)
    host = state.config.host
    return MetricsExporter(
        NodeIdentity(
            node_type=NodeType.NAME_SERVER,
            node_id=join_address(
                host if is_specific(host) else routable_address(), state.config.port
            ),
            further=exporter_labels(state.config),
        ),
        address,
        state.clock,
        meter=meter,
        connections=lambda: len(server.peers),
        sources=(partial(add_brokers, state), server.add_openings),
    )


def add_brokers(state: NameServerState, page: MetricsPage) -> None:
    """Add the number of brokers that are alive."""
    keys = state.brokers.registrations.keys()
    page.add(roquet.BROKERS, len(keys))
    page.add(roquet.BROKER_NAMES, len({name for name, _ in keys}))
