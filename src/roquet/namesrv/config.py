"""NameServerConfig: the settings of a name server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from roquet.metrics.exporter_settings import EXPORTER_PORT, MetricsExporterType
from roquet.model.config_check import CheckedConfig
from roquet.model.errors import ConfigError
from roquet.net.tls import ServerTls, Tls

PORT: Final = 9876
"""Default port of a name server."""

SCAN_MS: Final = 5_000
"""Ms between two checks for silent brokers: a dead broker stays known this much longer at most."""


class NameServerConfig(CheckedConfig, frozen=True, kw_only=True):
    """Settings of a name server. Times are in ms."""

    host: str = "0.0.0.0"
    """The interface to listen on."""
    port: int = PORT
    """0 takes any free port."""
    directory: Path | None = None
    """Directory of kvConfig.json; None keeps key-value settings in memory."""
    scan_ms: int = SCAN_MS
    """Ms between two checks for silent brokers."""
    order_messages: bool = False
    """Whether a route includes the order setting of its topic."""
    all_topics: bool = True
    """Whether clients may list all topics."""
    show_acting_master: bool = False
    """Whether a follower that stands in for its leader is shown to clients in the leader's place,
    for reads. The brokers decide whether they do (enableSlaveActingMaster)."""
    notify_lowest_id: bool = False
    """Whether brokers are notified at once when another member of their name has the lowest id."""
    access_file: Path | None = None
    """File with users and policies, as `roquet acl export` writes it: with it, requests must be
    signed by a user who may make them. None serves everybody."""
    access_cluster: str = "DefaultCluster"
    """The cluster of requests that name none, for policies on `Cluster:…`."""
    certificate_users: bool = False
    """Whether a request that is not signed comes from the user whom the client's certificate
    names; with `access_file` and an authority of clients' certificates."""
    tls: ServerTls | None = None
    """None accepts connections without TLS."""
    calls: Tls | None = None
    """How brokers are called to notify them; None calls them without TLS."""
    proxy_protocol_from: tuple[str, ...] = ()
    """IP addresses and CIDR blocks of load balancers whose connections may begin with a header of
    the PROXY protocol."""
    metrics_exporter: MetricsExporterType = MetricsExporterType.DISABLE
    """`PROM` shows metrics for Prometheus at `http://HOST:PORT/metrics`."""
    metrics_port: int = EXPORTER_PORT
    """Port of the metrics page; 0 takes any free one."""
    metrics_host: str = ""
    """The interface of the metrics page; `host` if empty."""
    metrics_label: str = ""
    """Further labels of all metrics, as `zone:a,rack:7`."""
    log_levels: str = ""
    """Levels of its loggers, as `WARNING` or `INFO,roquet.net:DEBUG`; empty: as at the start."""
    unused: Mapping[str, str] = {}
    """Settings of genuine name servers without effect here, as given; a query returns them."""
    whole_registrations: bool = False
    """Whether a topic that a broker no longer registers is removed. Genuine brokers register a new
    topic alone, so this is for clusters without them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.certificate_users and (self.tls is None or self.tls.client_ca is None):
            raise ConfigError("--certificate-users needs --tls-client-ca: it says whom to believe")
