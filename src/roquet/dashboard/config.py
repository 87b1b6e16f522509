"""DashboardConfig: the settings of a dashboard, with their checks."""

import ipaddress
from pathlib import Path
from typing import Final

from roquet.dashboard.masking import MaskRule, parse_rule
from roquet.model.config_check import CheckedConfig, check_least
from roquet.model.errors import ConfigError
from roquet.net.tls import ServerTls

PORT: Final = 8082
"""The port of Apache RocketMQ's dashboard as well."""

LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
"""Host names under which a browser of the same machine asks."""


class DashboardConfig(CheckedConfig, frozen=True, kw_only=True):
    """Settings of a dashboard. Times are in ms."""

    name_servers: str
    """Addresses of the name servers, separated by semicolons."""
    host: str = "127.0.0.1"
    """The interface to listen on; another one than the loopback needs `login`."""
    port: int = PORT
    """0 takes any free port."""
    login: bool = False
    """Whether visitors log in, as users of the cluster: their requests are signed with their own
    password, so that the cluster's policies say what they may do. Without it requests are signed
    as the dashboard's own user, if it has one."""
    read_only: bool = False
    """Whether every change is refused."""
    public_names: tuple[str, ...] = ()
    """Further host names under which browsers reach the dashboard, without ports."""
    tls: ServerTls | None = None
    is_behind_tls: bool = False
    """Whether a proxy that browsers reach by TLS stands before the dashboard."""
    audit_file: Path | None = None
    """File of JSON lines to which each change is appended; None keeps the newest in memory."""
    session_ms: int = 8 * 3_600_000
    """Time after which a login ends."""
    sample_ms: int = 10_000
    """Least time between two samples of the whole cluster; large clusters are sampled less often,
    so that a tenth of the time at most goes into it."""
    deadline_ms: int = 10_000
    """Time limit of one page."""
    tables: tuple[str, ...] = ()
    """Tables of archives that the page of jobs shows."""
    masks: tuple[str, ...] = ()
    """Rules that hide parts of message bodies: `TOPIC:FIELD` for JSON bodies, `TOPIC` for whole
    ones; `*` in a topic stands for any characters."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, {"port": 0, "session_ms": 1, "sample_ms": 1, "deadline_ms": 1})
        self.mask_rules  # noqa: B018 - raises ConfigError for a text that is no rule
        if not self.login and not is_loopback(self.host):
            raise ConfigError(
                f"host {self.host}: everybody who reaches it could change the cluster; set "
                "`login`, or listen on 127.0.0.1"
            )

    @property
    def mask_rules(self) -> tuple[MaskRule, ...]:
        """The rules of `masks`. Raises ConfigError for a text that is none."""
        return tuple(map(parse_rule, self.masks))

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the dashboard by TLS."""
        return self.tls is not None or self.is_behind_tls

    @property
    def is_readable(self) -> bool:
        """Whether passwords of logins cross a network without TLS."""
        return self.login and not self.is_secure and not is_loopback(self.host)

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """Host names, in lower case, that a request's Host header may have.

        Others are refused: a foreign page could make its own name point to this machine.
        """
        named = [self.host] if self.host not in {"0.0.0.0", "::"} else []
        return frozenset(name.lower() for name in (*LOCAL_NAMES, *named, *self.public_names))


def is_loopback(host: str) -> bool:
    """Whether a host can be reached from the same machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
