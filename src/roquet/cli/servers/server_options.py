"""Options of commands that start servers: where they listen, how they are reached, TLS."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.model.errors import ConfigError, UsageError
from roquet.model.settings import parse_address
from roquet.net.address import PORT_MAX
from roquet.net.tls import ClientAuth, ServerTls, Tls, TlsMode
from roquet.observe.exporter import ExporterAddress
from roquet.rules.access.patterns import parse_sources

ALL_INTERFACES: Final = "0.0.0.0"

PORT_DIGITS_MAX: Final = 10
"""Digits of a port that are looked at."""

_HOST: Final = typer.Option("--host", help="The interface to listen on.")

HostOption = Annotated[str | None, _HOST]
"""None: the settings say it, or the command has a default."""
AdvertiseOption = Annotated[
    str | None,
    typer.Option("--advertise", metavar="HOST[:PORT]", help="The address that clients are told."),
]
DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Where messages are.")
]
MemoryOption = Annotated[bool, typer.Option("--memory", help="Keep everything in memory.")]
TlsCertOption = Annotated[
    Path | None, typer.Option(metavar="PEM", help="Take connections with TLS: certificate.")
]
TlsModeOption = Annotated[
    TlsMode | None,
    typer.Option(help="With a certificate: take plain connections, too (permissive), or not."),
]
TlsCaOption = Annotated[
    Path | None,
    typer.Option(metavar="PEM", help="Call brokers by TLS: who signs their certificates."),
]
ProxyOption = Annotated[
    str | None,
    typer.Option(
        "--proxy-from",
        metavar="IP[/BITS],...",
        help="Load balancers whose PROXY protocol is believed.",
    ),
]
TlsKeyOption = Annotated[
    Path | None, typer.Option(metavar="PEM", help="The certificate's private key.")
]
TlsClientCaOption = Annotated[
    Path | None, typer.Option(metavar="PEM", help="Who signs the certificates clients must show.")
]
TlsClientAuthOption = Annotated[
    ClientAuth | None,
    typer.Option(help="With --tls-client-ca: whether clients must show a certificate."),
]
AccessFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Users and policies, as `roquet acl export` writes."),
]
CertificateUsersOption = Annotated[
    bool | None,
    typer.Option(
        "--certificate-users",
        help="With --access-file: take a certificate's name as the user of unsigned requests.",
    ),
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


def server_tls(
    cert: Path | None,
    key: Path | None,
    client_ca: Path | None,
    mode: TlsMode | None = None,
    client_auth: ClientAuth | None = None,
) -> ServerTls | None:
    """The TLS settings of a server from its options; None without a certificate."""
    if cert is None and (key or client_ca or mode):
        raise UsageError(
            "--tls-key, --tls-client-ca and --tls-mode are of no use without --tls-cert"
        )
    if client_auth is not None and client_ca is None:
        raise UsageError("--tls-client-auth is of no use without --tls-client-ca")
    if cert is None:
        return None
    return ServerTls(
        cert=cert,
        key=key,
        client_ca=client_ca,
        client_auth=client_auth or ClientAuth.REQUIRE,
        mode=mode or TlsMode.ENFORCING,
    )


def calls_tls(ca: Path | None, cert: Path | None, key: Path | None) -> Tls | None:
    """TLS of a server's own calls, which show its certificate; None without an authority."""
    return None if ca is None else Tls(ca=ca, cert=cert, key=key)


def proxies(text: str | None) -> tuple[str, ...] | None:
    """The load balancers of `--proxy-from`; None if it was not given. Raises ConfigError."""
    return None if text is None else parse_sources(text, "--proxy-from")


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
