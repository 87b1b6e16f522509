"""Options of commands that start servers: where they listen, how they are reached, TLS."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.model.errors import ConfigError, UsageError
from roquet.model.settings import parse_address
from roquet.net.address import PORT_MAX
from roquet.net.exporter.exporter import ExporterAddress
from roquet.net.tls import ServerTls

ALL_INTERFACES: Final = "0.0.0.0"

PORT_DIGITS_MAX: Final = 10
"""Digits of a port that are looked at."""

_HOST: Final = typer.Option("--host", help="The interface to listen on.")

HostOption = Annotated[str, _HOST]
SettledHostOption = Annotated[str | None, _HOST]
"""Of a server whose settings may say it, too."""
AdvertiseOption = Annotated[
    str | None,
    typer.Option("--advertise", metavar="HOST[:PORT]", help="The address that clients are told."),
]
DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Where messages are.")
]
MemoryOption = Annotated[bool, typer.Option("--memory", help="Keep everything in memory.")]
TlsCertOption = Annotated[
    Path | None, typer.Option(metavar="PEM", help="Take connections with TLS alone: certificate.")
]
TlsKeyOption = Annotated[
    Path | None, typer.Option(metavar="PEM", help="The certificate's private key.")
]
TlsClientCaOption = Annotated[
    Path | None, typer.Option(metavar="PEM", help="Who signs the certificates clients must show.")
]
MetricsOption = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="[HOST:]PORT",
        help="Show metrics for Prometheus at http://HOST:PORT/metrics.",
    ),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Log more, on stderr.")]


def server_tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> ServerTls | None:
    """The TLS settings of a server from its options; None without a certificate."""
    if cert is None and (key or client_ca):
        raise UsageError("--tls-key and --tls-client-ca are of no use without --tls-cert")
    return ServerTls(cert=cert, key=key, client_ca=client_ca) if cert else None


def exporter_options(metrics: str | None) -> dict[str, Any]:
    """The settings that `--metrics` stands for, by name; none without it."""
    if metrics is None:
        return {}
    address = metrics_address(metrics)
    return {
        "metrics_exporter": MetricsExporterType.PROM,
        "metrics_port": address.port,
        "metrics_host": address.host,
    }


def metrics_address(metrics: str) -> ExporterAddress:
    """The address in `--metrics`; an empty host is that of the server."""
    if not metrics.isdecimal():
        return ExporterAddress(*parse_address(metrics, "--metrics"))
    if (port := int(metrics[:PORT_DIGITS_MAX])) > PORT_MAX:
        raise ConfigError(f"--metrics: {metrics[:PORT_DIGITS_MAX]} is no port")
    return ExporterAddress("", port)


def settings_file(names: str) -> object:
    """The option for a file of settings; `names` says what may be in it."""
    return typer.Option("--config", "-c", help=names)


def any_port(default: int) -> object:
    """The option for a port that a file may say, too."""
    return typer.Option(help=f"0 takes any free one; {default} if nothing says it.")
