"""Controller metrics: whether a controller leads, the brokers that it knows, and its requests."""

from functools import partial

from roquet.controller.controller import Controller
from roquet.metrics import roquet_metrics as roquet
from roquet.metrics.metric import NodeType
from roquet.metrics.text_format import MetricsPage
from roquet.net.request_meter import RequestMeter
from roquet.net.router import Router
from roquet.net.server import Server
from roquet.observe.exporter import (
    MetricsExporter,
    NodeIdentity,
    exporter_address,
    exporter_labels,
)


def measure(
    controller: Controller, address: str, router: Router, server: Server
) -> MetricsExporter | None:
    """The exporter of a controller, which counts from now on; None if it is to show no metrics.

    `address` is the controller's own, by which pages are told apart.
    """
    if (place := exporter_address(controller.config)) is None:
        return None
    router.meter = meter = RequestMeter(controller.clock)
    return MetricsExporter(
        NodeIdentity(
            node_type=NodeType.CONTROLLER,
            node_id=address,
            further=exporter_labels(controller.config),
        ),
        place,
        controller.clock,
        meter=meter,
        connections=lambda: len(server.peers),
        sources=(
            partial(add_leadership, controller),
            partial(add_groups, controller),
            server.add_openings,
        ),
    )


def add_leadership(controller: Controller, page: MetricsPage) -> None:
    """Add whether the controller leads."""
    page.add(roquet.IS_LEADER, int(controller.leadership.state is not None))


def add_groups(controller: Controller, page: MetricsPage) -> None:
    """Add the number of brokers that are alive."""
    page.add(roquet.BROKERS, controller.liveness.count)
    page.add(roquet.BROKER_NAMES, len(controller.liveness.names))
