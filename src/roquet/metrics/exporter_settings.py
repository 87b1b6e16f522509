"""Exporter settings: whether and where a process shows its metrics."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from roquet.model.errors import ConfigError
from roquet.model.settings import parse_int

EXPORTER_PORT: Final = 5557
"""Default port of a metrics page, as at Apache's brokers."""


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
}
"""Settings of name servers and controllers, by Apache's keys."""
