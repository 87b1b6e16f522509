"""NameServerConfig: where a name server listens, what it keeps and how patient it is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from roquet.model.config_check import CheckedConfig
from roquet.net.tls import ServerTls

PORT: Final = 9876
"""Where clients look for a name server."""

SCAN_MS: Final = 5_000
"""How often the silent are looked for: a dead broker stays known this much longer at most."""


class NameServerConfig(CheckedConfig, frozen=True, kw_only=True):
    """Where a name server listens, what it keeps and how patient it is."""

    host: str = "0.0.0.0"
    """The interface to listen on."""
    port: int = PORT
    """Zero takes any free port."""
    directory: Path | None = None
    """Where kept values are saved; None keeps them in memory."""
    scan_ms: int = SCAN_MS
    """How often silent brokers are looked for, in ms."""
    order_messages: bool = False
    """Whether a route tells the order setting of its topic."""
    all_topics: bool = True
    """Whether anybody may list all topics."""
    tls: ServerTls | None = None
    """None takes connections without TLS."""
    unused: Mapping[str, str] = {}
    """Settings of genuine name servers without effect here, as they were given: told again."""
    whole_registrations: bool = False
    """Whether a topic that a broker no longer registers is forgotten. Genuine brokers register a
    new topic alone, so this is for clusters without them."""
