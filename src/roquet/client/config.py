"""ClientConfig, ProducerConfig, ConsumerConfig: what a user may set beyond the names."""

from collections.abc import Mapping, Sequence
from enum import Enum
from random import Random
from typing import Final

import msgspec

from roquet.model.errors import ConfigError
from roquet.model.settings import parse_addresses
from roquet.model.subscription import ConsumeFromWhere
from roquet.net.clock import SYSTEM_CLOCK, Clock
from roquet.rules.allocate import STRATEGIES, Strategy
from roquet.rules.progress import IN_FLIGHT_BYTES_MAX, IN_FLIGHT_MAX
from roquet.rules.rebalance import REBALANCE_PERIOD_MS

NAMESRV_VARIABLE: Final = "NAMESRV_ADDR"
"""The environment variable that genuine clients read, too."""


class ConsumeFrom(Enum):
    """Where a group without progress begins."""

    LAST = "last"
    """With what is stored after its first member came."""
    FIRST = "first"
    """With the oldest message that the broker still holds."""
    TIMESTAMP = "timestamp"
    """With the first message stored at a time or later."""

    @property
    def on_the_wire(self) -> ConsumeFromWhere:
        """What a heartbeat calls it."""
        match self:
            case ConsumeFrom.LAST:
                return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
            case ConsumeFrom.FIRST:
                return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            case ConsumeFrom.TIMESTAMP:
                return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What all clients have in common. Times are in ms, sizes in bytes."""

    timeout_ms: int = 3_000
    """Of one call that is not a send."""
    route_period_ms: int = 30_000
    heartbeat_period_ms: int = 30_000
    client_ip: str | None = None
    """The address in client and message ids; None finds this machine's own."""
    instance: str | None = None
    """The second half of the client id; None makes one that no other client has."""
    clock: Clock = SYSTEM_CLOCK
    rng: Random = msgspec.field(default_factory=Random)
    """Where the first turn falls: a seeded one makes a test repeatable."""


class ProducerConfig(ClientConfig, frozen=True, kw_only=True):
    """How a producer sends."""

    send_timeout_ms: int = 3_000
    """Of one send with all its tries."""
    retries: int = 2
    """Tries after the first one; on another broker, when there is one and the order allows it."""
    body_size_max: int = 4 * 1024 * 1024
    """Of one message, or of one batch: what brokers take by default."""
    compress_over: int = 4 * 1024
    """Bodies longer than this are squeezed with zlib, which every client reads."""
    compress_level: int = 5
    new_topic_queues: int = 4
    """Queues on each broker of a topic that the first send creates."""


class ConsumerConfig(ClientConfig, frozen=True, kw_only=True):
    """How a consumer reads."""

    consume_from: ConsumeFrom = ConsumeFrom.LAST
    consume_timestamp_ms: int | None = None
    """For TIMESTAMP; None is half an hour before the start, as in Java."""
    strategy: str | Strategy = "AVG"
    """Who gets which queues: all members of a group must use the same."""
    concurrency: int = 20
    """Handlers at work at one time."""
    pull_count: int = 256
    """Messages that one pull asks for; genuine brokers answer with 32 at most."""
    pull_bytes: int = 256 * 1024
    suspend_ms: int = 15_000
    """How long the broker may keep a pull that finds nothing new."""
    pull_timeout_ms: int = 30_000
    in_flight_max: int = IN_FLIGHT_MAX
    in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX
    save_period_ms: int = 5_000
    rebalance_period_ms: int = REBALANCE_PERIOD_MS
    close_timeout_ms: int = 30_000
    """How long a close waits for handlers at work."""

    def find_strategy(self) -> Strategy:
        """The rule that `strategy` names, or is."""
        if not isinstance(self.strategy, str):
            return self.strategy
        if self.strategy not in STRATEGIES:
            known = ", ".join(STRATEGIES)
            raise ConfigError(f"strategy: {self.strategy!r} is unknown; there is {known}")
        return STRATEGIES[self.strategy]


def name_servers(given: str | Sequence[str] | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The addresses to ask: as given, else as the environment says."""
    if given is None:
        if not (given := environ.get(NAMESRV_VARIABLE)):
            raise ConfigError(
                f"no name server given: pass 'HOST:9876', or set {NAMESRV_VARIABLE}; "
                "`roquet dev` starts one"
            )
        return parse_addresses(given, NAMESRV_VARIABLE)
    text = given if isinstance(given, str) else ";".join(given)
    return parse_addresses(text, "namesrv")
