"""Metric: name, type, labels and meaning of one metric, and where it is shown."""

from enum import StrEnum
from typing import Final

import msgspec


class MetricType(StrEnum):
    """Type of a metric, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class NodeType(StrEnum):
    """Kind of a server process that shows metrics: the value of its label node_type."""

    BROKER = "broker"
    NAME_SERVER = "namesrv"
    CONTROLLER = "controller"
    PROXY = "proxy"
    SUPERVISOR = "supervisor"


BROKER: Final = (NodeType.BROKER,)

SERVERS: Final = (NodeType.BROKER, NodeType.NAME_SERVER, NodeType.CONTROLLER, NodeType.PROXY)


class Metric(msgspec.Struct, frozen=True):
    """One metric. Its values are told apart by the values of its labels."""

    name: str
    type: MetricType
    help: str
    """Meaning and unit, in one line."""
    labels: tuple[str, ...] = ()
    """Names of the labels, besides those that all metrics of a process have."""
    bounds: tuple[float, ...] = ()
    """Upper bounds of the buckets of a histogram, ascending; the last bucket has none."""
    nodes: tuple[NodeType, ...] = BROKER
    """Kinds of processes that show it."""


def counter(name: str, help_: str, *labels: str, nodes: tuple[NodeType, ...] = BROKER) -> Metric:
    """Define a number that only grows, from 0 at the start of the process."""
    return Metric(name, MetricType.COUNTER, help_, labels, nodes=nodes)


def gauge(name: str, help_: str, *labels: str, nodes: tuple[NodeType, ...] = BROKER) -> Metric:
    """Define a number that may grow and shrink."""
    return Metric(name, MetricType.GAUGE, help_, labels, nodes=nodes)


def histogram(
    name: str,
    help_: str,
    *labels: str,
    bounds: tuple[float, ...],
    nodes: tuple[NodeType, ...] = BROKER,
) -> Metric:
    """Define a distribution: how many values were at most as large as each bound."""
    return Metric(name, MetricType.HISTOGRAM, help_, labels, bounds, nodes)
