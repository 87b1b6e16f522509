"""roquet proxy: serves RocketMQ 5's official clients, by gRPC, in front of a cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roquet.cli.command_options import As, option
from roquet.cli.operator_command import check_extra
from roquet.cli.process import runtime
from roquet.cli.servers.server_options import (
    ACCESS_FILE,
    TLS_CERT,
    TLS_KEY,
    LoadBalancerOptions,
    server_tls,
)
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import NamesrvOption, ProfileOption, namesrv_addresses
from roquet.model.errors import ConfigError, UsageError
from roquet.net.address import check_port
from roquet.net.tls import TlsMode
from roquet.proxy.config import PORT, ProxyConfig

if TYPE_CHECKING:
    from roquet.broker.app import BrokerServer

NEEDED: Final = ("grpc", "google")
"""Modules of the packages grpcio and protobuf."""

MS_PER_S: Final = 1_000


class ProxyServerOptions(LoadBalancerOptions):
    """Options of `roquet proxy`."""

    namesrv: NamesrvOption = None
    profile: ProfileOption = None
    port: int = option("0 takes any free one.", default=PORT)
    host: str = option("The interface to listen on.", default="0.0.0.0")
    tls_cert: Path | None = TLS_CERT
    tls_key: Path | None = TLS_KEY
    tls_mode: TlsMode | None = option(
        "Which connections are taken: with TLS alone (enforcing), without it alone (disabled), or "
        "both, which is the default. Without --tls-cert the certificate is made at the start."
    )
    access_file: Path | None = ACCESS_FILE
    broker_users: bool = option(
        "Take users and policies from the brokers; the proxy's own user is a super user there."
    )
    no_policies: bool = option(
        "Let each known user do everything, as brokers do without authorizationEnabled.",
        gives=As("checks_policies", lambda wanted: not wanted),
    )
    connection_age: int | None = option(
        "End connections of this age, so that clients spread over proxies that were added.",
        gives=As("connection_age_ms", lambda seconds: seconds * MS_PER_S),
        min=1,
        metavar="SECONDS",
    )
    admin_port: int | None = option(
        "Serve operators by gRPC as well, at this port of 127.0.0.1; 0 takes any free one.",
        default=None,
    )


def proxy(options: ProxyServerOptions) -> None:
    """Serve RocketMQ 5's official clients in front of a cluster, Apache's or Roquet's."""
    check_installed()
    check_port(options.port)
    if options.admin_port is not None:
        check_port(options.admin_port)
    if options.access_file is not None and options.broker_users:
        raise UsageError("--access-file and --broker-users: users are in one place, leave one out")
    config = ProxyConfig(**_tls(options), **options.fields_of(ProxyConfig), **options.exporter)
    runtime.run(serve_until_stopped(namesrv_addresses(options.namesrv), config))


def _tls(options: ProxyServerOptions) -> dict[str, Any]:
    mode = options.tls_mode
    if options.tls_cert is None and mode is TlsMode.ENFORCING:
        raise UsageError(
            "--tls-mode enforcing: give the certificate that clients trust, --tls-cert"
        )
    if options.tls_cert is None and options.tls_key is None:
        return {"self_signed": mode is not TlsMode.DISABLED}
    mode = mode or TlsMode.PERMISSIVE
    return {"tls": server_tls(options.tls_cert, options.tls_key, mode=mode)}


def check_installed() -> None:
    """Raise UsageError when a package of the extra `grpc` is not installed."""
    check_extra("grpc", NEEDED)


def is_installed() -> bool:
    """Whether the extra `grpc` is installed."""
    try:
        check_installed()
    except UsageError:
        return False
    return True


async def serve_until_stopped(namesrv: str, config: ProxyConfig) -> None:
    """Serve clients until the process is told to stop."""
    from roquet.proxy.server import ProxyServer

    stop = runtime.stop_signal()
    async with ProxyServer(namesrv, config) as server:
        if config.admin_port is not None:
            output.echo(f"operators at {config.admin_host}:{server.admin_port}")
        output.echo(f"proxy ready at {server.address}")
        await stop.wait()


@asynccontextmanager
async def dev_proxy(namesrv: str, broker: "BrokerServer", port: int) -> AsyncIterator[str]:
    """Serve a proxy of a developer's cluster, with the broker's security; yields its address."""
    from roquet.proxy.server import ProxyServer

    settings = broker.config
    own = settings.inner_credentials
    config = ProxyConfig(
        host=settings.host,
        port=port,
        tls=settings.server_tls,
        proxy_protocol_from=settings.proxy_protocol_from,
        broker_users=settings.authentication_enabled,
        checks_policies=settings.authorization_enabled,
        access_key=own.access_key if own else None,
        secret_key=own.secret_key if own else None,
        calls=settings.calls_tls,
        creates_topics=settings.auto_create_topic,
    )
    try:
        async with ProxyServer(namesrv, config, {broker.address: broker.server}) as server:
            yield server.address
    except ConfigError as error:  # here the broker has --port
        raise ConfigError(str(error).replace("port:", "--grpc-port:")) from None
