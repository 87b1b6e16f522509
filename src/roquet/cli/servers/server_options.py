"""Options of commands that start servers: where they listen, how they are reached, TLS."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from roquet.cli.command_options import As, CommandOptions, option
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

HOST: Final = option("The interface to listen on.")
ADVERTISE: Final = option("The address that clients are told.", metavar="HOST[:PORT]")
DATA: Final = option("Where messages are.", metavar="DIR")
MEMORY: Final = option("Keep everything in memory.")
TLS_CERT: Final = option("Take connections with TLS: certificate.", metavar="PEM")
TLS_KEY: Final = option("The certificate's private key.", metavar="PEM")
ACCESS_FILE: Final = option("Users and policies, as `roquet acl export` writes.", metavar="FILE")


class VerboseOptions(CommandOptions):
    """The option that every server has."""

    verbose: bool = option("Log more, on stderr.", "-v")


class MetricsOptions(VerboseOptions):
    """Options of a server that may show metrics."""

    metrics: str | None = option(
        "Show metrics for Prometheus at http://HOST:PORT/metrics.", metavar="[HOST:]PORT"
    )

    @property
    def exporter(self) -> dict[str, Any]:
        """The settings that `--metrics` stands for, by name; none without it."""
        if self.metrics is None:
            return {}
        address = metrics_address(self.metrics)
        return {
            "metrics_exporter": MetricsExporterType.PROM,
            "metrics_port": address.port,
            "metrics_host": address.host,
        }


class SecurityOptions(CommandOptions):
    """Options for users and TLS of name servers and controllers."""

    access_file: Path | None = ACCESS_FILE
    tls_cert: Path | None = TLS_CERT
    tls_key: Path | None = TLS_KEY
    tls_client_ca: Path | None = option(
        "Who signs the certificates clients must show.", metavar="PEM"
    )
    tls_client_auth: ClientAuth | None = option(
        "With --tls-client-ca: whether clients must show a certificate."
    )
    tls_mode: TlsMode | None = option(
        "With a certificate: take plain connections, too (permissive), or not."
    )
    tls_ca: Path | None = option(
        "Call brokers by TLS: who signs their certificates.", metavar="PEM"
    )
    certificate_users: bool | None = option(
        "With --access-file: take a certificate's name as the user of unsigned requests.",
        "--certificate-users",
    )

    @property
    def tls(self) -> dict[str, ServerTls | Tls | None]:
        """The settings of TLS by name; None was not given."""
        tls = server_tls(
            self.tls_cert, self.tls_key, self.tls_client_ca, self.tls_mode, self.tls_client_auth
        )
        return {"tls": tls, "calls": calls_tls(self.tls_ca, self.tls_cert, self.tls_key)}


def proxies(text: str | None) -> tuple[str, ...] | None:
    """The load balancers of `--proxy-from`; None if it was not given. Raises ConfigError."""
    return None if text is None else parse_sources(text, "--proxy-from")


class LoadBalancerOptions(MetricsOptions):
    """Options of a server behind load balancers."""

    proxy_from: str | None = option(
        "Load balancers whose PROXY protocol is believed.",
        gives=As("proxy_protocol_from", proxies),
        metavar="IP[/BITS],...",
    )


def server_tls(
    cert: Path | None,
    key: Path | None,
    client_ca: Path | None = None,
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


def metrics_address(metrics: str) -> ExporterAddress:
    """The address in `--metrics`; an empty host is that of the server."""
    if not metrics.isdecimal():
        return ExporterAddress(*parse_address(metrics, "--metrics"))
    if (port := int(metrics[:PORT_DIGITS_MAX])) > PORT_MAX:
        raise ConfigError(f"--metrics: {metrics[:PORT_DIGITS_MAX]} is no port")
    return ExporterAddress("", port)


def given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that options stand for, without those that were not given."""
    return {name: value for name, value in settings.items() if value is not None}


def settings_file(text: str) -> Any:
    """The option for a file of settings; `text` says what may be in it."""
    return option(text, "--config", "-c")


def any_port(default: int) -> Any:
    """The option for a port that a file may say, too."""
    return option(f"0 takes any free one; {default} if nothing says it.")
