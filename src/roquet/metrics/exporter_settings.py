"""Exporter settings: whether and where a process shows its metrics."""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from roquet.model.errors import ConfigError
from roquet.model.settings import parse_int

LABEL_NAME: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
"""Form of a label's name; those with two underscores belong to Prometheus."""

OWN_LABELS: Final = frozenset(
    {"cluster", "node_type", "node_id", "otel_scope_name", "process", "le"}
)
"""Labels of all metrics, or of pages and histograms, that a setting cannot take."""

EXPORTER_PORT: Final = 5557
"""Default port of a metrics page, as in Apache's broker."""


class MetricsExporterType(StrEnum):
    """How metrics leave a process: the values of Apache's key metricsExporterType."""

    DISABLE = "DISABLE"
    """They are not collected."""
    PROM = "PROM"
    """A page for Prometheus."""
    OTLP_GRPC = "OTLP_GRPC"
    LOG = "LOG"
    """These two are not served: they count as DISABLE, with a warning."""


def parse_exporter_type(text: str, where: str) -> MetricsExporterType:
    """The value of metricsExporterType. Raises ConfigError, beginning with `where`."""
    if text not in frozenset(MetricsExporterType):
        raise ConfigError(f"{where}: {text!r} is none of {', '.join(MetricsExporterType)}")
    return MetricsExporterType(text)


def parse_labels(text: str, where: str) -> Mapping[str, str]:
    """The labels in `name:value,name:value`; none in an empty text.

    Raises ConfigError, beginning with `where`.
    """
    labels: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, colon, value = (piece.strip() for piece in part.partition(":"))
        if not colon or not value or LABEL_NAME.fullmatch(name) is None:
            raise ConfigError(f"{where}: {part!r:.100} is no label, as in zone:a,rack:7")
        if name in OWN_LABELS:
            raise ConfigError(f"{where}: {name} is a label that metrics have: take another name")
        labels[name] = value
    return labels


def check_labels(text: str, where: str) -> str:
    """The text itself, if `parse_labels` reads it. Raises ConfigError otherwise."""
    parse_labels(text, where)
    return text


def _port(text: str, where: str) -> int:
    return parse_int(text, where, least=0)


def _host(text: str, _where: str) -> str:
    return text


class ExporterSetting(NamedTuple):
    """A field of a server's settings that one of Apache's keys sets."""

    name: str
    parse: Callable[[str, str], Any]
    """Value from its text; the second argument names the key in errors."""


EXPORTER_SETTINGS: Final[Mapping[str, ExporterSetting]] = {
    "metricsExporterType": ExporterSetting("metrics_exporter", parse_exporter_type),
    "metricsPromExporterPort": ExporterSetting("metrics_port", _port),
    "metricsPromExporterHost": ExporterSetting("metrics_host", _host),
    "metricsLabel": ExporterSetting("metrics_label", check_labels),
}
"""Settings of name servers and controllers, by Apache's keys."""
