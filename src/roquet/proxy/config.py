"""ProxyConfig: settings of the gRPC proxy, with their checks."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from roquet.model.config_check import CheckedConfig, check_least
from roquet.net.clock import SYSTEM_CLOCK, Clock

PORT: Final = 8081
"""The port at which official clients look for a proxy."""

MINIMUMS: Final[Mapping[str, int]] = MappingProxyType({"call_timeout_ms": 1, "settings_wait_ms": 0})


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
    creates_topics: bool = False
    """Make an unknown topic at the first message to it, of that message's type."""
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, MINIMUMS)
