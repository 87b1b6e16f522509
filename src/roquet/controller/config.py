"""ControllerConfig: the settings of a controller."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from roquet.metrics.exporter_settings import EXPORTER_PORT, MetricsExporterType
from roquet.model.config_check import CheckedConfig, check_least
from roquet.model.errors import ConfigError
from roquet.net.tls import ServerTls, Tls
from roquet.rules.election.lease import LENGTH_MS

PORT: Final = 9878
"""Default port of a controller, as in Apache's documents."""

SCAN_MS: Final = 5_000
"""Ms between two looks for groups without a living master, if nothing asks for one before."""

MEMORY_STORE: Final = "memory"
"""Name of the store that keeps nothing."""

ETCD_STORE: Final = "etcd"
"""Kind of the stores in etcd that is called by plain HTTP."""

ETCD_TLS_STORE: Final = "etcd+https"
"""Kind of the stores in etcd that is called by TLS."""

LEASE_MS_MIN: Final = 100
"""Shorter leases end before the next heartbeat of a broker comes."""


TIME_MS_MAX: Final = 24 * 60 * 60 * 1_000
"""Longest time of a setting."""


class ControllerConfig(CheckedConfig, frozen=True, kw_only=True):
    """Settings of a controller. Times are in ms."""

    host: str = "0.0.0.0"
    """The interface to listen on."""
    port: int = PORT
    """0 takes any free port."""
    advertise: str | None = None
    """HOST[:PORT] that brokers are told; None finds a routable address of this machine."""
    store: str = MEMORY_STORE
    """Where groups are kept: memory, file:DIR or etcd:HOST:PORT[,HOST:PORT…]; etcd+https:… calls
    etcd by TLS."""
    controllers: str = "DefaultControllerGroup"
    """Name of the group of controllers, under which they share groups of brokers in etcd."""
    controller_id: str | None = None
    """Name of this one, different from all others of its group; None: its address."""
    elect_unclean_master: bool = False
    """Whether a broker outside the sync-state set is elected when no member of it lives, although
    acknowledged messages are lost."""
    notify_role_changes: bool = True
    """Whether brokers are told of an election at once; they also ask every few seconds."""
    scan_ms: int = SCAN_MS
    """Ms between two looks for masters that died, if no connection ended before."""
    lease_ms: int = LENGTH_MS
    """Length of a master's lease: how long it goes on without this controller, and how long
    another broker cannot be elected after it was lost, unless it waits for its whole set."""
    access_file: Path | None = None
    """File with users and policies, as `roquet acl export` writes it: with it, requests must be
    signed by a user who may make them. None serves everybody."""
    access_cluster: str = "DefaultCluster"
    """The cluster of this controller, for policies on `Cluster:…`."""
    certificate_users: bool = False
    """Whether a request that is not signed comes from the user whom the client's certificate
    names; with `access_file` and an authority of clients' certificates."""
    tls: ServerTls | None = None
    """None accepts connections without TLS."""
    calls: Tls | None = None
    """How brokers are called to tell them of elections; None calls them without TLS."""
    etcd_tls: Tls | None = None
    """The authority of etcd's certificates, and ours if it asks for one; None trusts the
    authorities of this machine."""
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
    """Settings of Apache's controllers without effect here, as given; a query returns them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, {"scan_ms": 1, "lease_ms": LEASE_MS_MIN, "port": 0})
        if self.certificate_users and (self.tls is None or self.tls.client_ca is None):
            raise ConfigError("--certificate-users needs --tls-client-ca: it says whom to believe")
        if self.etcd_tls is not None and not self.store.startswith(f"{ETCD_TLS_STORE}:"):
            raise ConfigError(
                f"store: {self.store!r} is not called by TLS: write {ETCD_TLS_STORE}:HOST:PORT"
            )
        for name in ("scan_ms", "lease_ms"):
            if (value := getattr(self, name)) > TIME_MS_MAX:
                raise ConfigError(f"{name}: {value} is more than {TIME_MS_MAX}, a day")
