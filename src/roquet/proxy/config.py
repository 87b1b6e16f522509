"""ProxyConfig: settings of the gRPC proxy, with their checks."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from roquet.metrics.exporter_settings import EXPORTER_PORT, MetricsExporterType
from roquet.model.config_check import CheckedConfig, check_least
from roquet.net.clock import SYSTEM_CLOCK, Clock
from roquet.net.tls import ServerTls, Tls, TlsMode

PORT: Final = 8081
"""The port at which official clients look for a proxy."""

MINIMUMS: Final[Mapping[str, int]] = MappingProxyType(
    {"call_timeout_ms": 1, "settings_wait_ms": 0, "connection_age_ms": 1_000}
)


class ProxyConfig(CheckedConfig, frozen=True, kw_only=True):
    """Settings of a proxy. Times are in ms."""

    port: int = PORT
    """0 takes a free one."""
    host: str = "0.0.0.0"
    call_timeout_ms: int = 2_000
    """Timeout of a broker's answer, but for pops, which wait for messages."""
    settings_wait_ms: int = 3_000
    """How long a receive waits for its client's settings, which come by another stream."""
    check_message_types: bool = True
    """Refuse messages of a type that their topic does not take."""
    tls: ServerTls | None = None
    """The certificate that clients see, and whether plain connections are taken beside TLS."""
    self_signed: bool = True
    """Without `tls`: take TLS as well, with a certificate made up at the start, as Apache's proxy
    does. Clients of Java, Go and C# begin with TLS, and check no certificate unless told to. False
    takes plain connections alone, without the relay that tells both apart."""
    proxy_protocol_from: tuple[str, ...] = ()
    """IP addresses and CIDR blocks of load balancers whose connections may begin with a header of
    the PROXY protocol."""
    access_file: Path | None = None
    """File with users and policies, as `roquet acl export` writes it: with it, requests must be
    signed by a user who may make them. None serves everybody, unless `broker_users`."""
    broker_users: bool = False
    """Take users and policies from the brokers. The proxy's own user, whose keys are `access_key`
    and `secret_key`, has to be a super user there."""
    checks_policies: bool = True
    """Whether a known user needs a policy, too; False as at brokers without
    `authorization_enabled`."""
    access_key: str | None = None
    """Signs the proxy's own calls to name servers and brokers; None takes ROCKETMQ_ACCESS_KEY."""
    secret_key: str | None = None
    """Neither sent nor shown; None takes ROCKETMQ_SECRET_KEY."""
    calls: Tls | None = None
    """How name servers and brokers are called; None takes ROCKETMQ_TLS."""
    connection_age_ms: int | None = None
    """Age from which a connection is ended in good order, so that clients spread over proxies that
    were added; None lets it last."""
    metrics_exporter: MetricsExporterType = MetricsExporterType.DISABLE
    """`PROM` shows metrics for Prometheus at `http://HOST:PORT/metrics`, health beside them."""
    metrics_port: int = EXPORTER_PORT
    """Port of the metrics page; 0 takes any free one."""
    metrics_host: str = ""
    """The interface of the metrics page; `host` if empty."""
    metrics_label: str = ""
    """Further labels of all metrics, as `zone:a,rack:7`."""
    clock: Clock = SYSTEM_CLOCK

    @property
    def checks_access(self) -> bool:
        """Whether requests must be signed."""
        return self.broker_users or self.access_file is not None

    @property
    def is_relayed(self) -> bool:
        """Whether connections differ in how they begin, which gRPC's own port does not tell."""
        has_tls = self.tls.mode is not TlsMode.DISABLED if self.tls else self.self_signed
        return has_tls or bool(self.proxy_protocol_from)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, MINIMUMS)
