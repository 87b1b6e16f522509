"""ClientConfig, ProducerConfig, ConsumerConfig: what a user may set beyond the names."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

import msgspec

from roquet.model.config_check import CheckedConfig, check_least
from roquet.model.errors import ConfigError, UsageError
from roquet.model.message import Message
from roquet.model.names import TRACE_TOPIC
from roquet.model.queue import MessageQueue
from roquet.model.settings import parse_addresses
from roquet.model.subscription import ConsumeFromWhere, MessageModel
from roquet.net.clock import SYSTEM_CLOCK, Clock
from roquet.net.tls import Tls
from roquet.rules.allocate import BROKER_DECIDED, STRATEGIES, MachineRoomStrategy, Strategy, name_of
from roquet.rules.balance.rebalance import REBALANCE_PERIOD_MS
from roquet.rules.consumption.flow_control import (
    IN_FLIGHT_BYTES_MAX,
    IN_FLIGHT_MAX,
    SPAN_MAX,
    FlowLimits,
)
from roquet.wire.records.compression import Compression

NAMESRV_VARIABLE: Final = "NAMESRV_ADDR"
"""The environment variable that genuine clients read, too."""

HANDLER_LIMIT_MS: Final = 15 * 60_000
"""A handler that takes longer has failed, as in Java."""

BATCH_BYTES_MAX: Final = 256 * 1024
"""Of one batch: the broker stores it in one step, others wait as long; longer messages go alone."""

Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Says which of a topic's queues a message goes to; see `client.selectors`."""

_SECRETS: Final = frozenset({"secret_key", "security_token"})

_LEVELS: Final = {Compression.ZLIB: 9, Compression.LZ4: 16, Compression.ZSTD: 22}
"""The highest that each library knows."""


class ConsumeFrom(Enum):
    """Where a group without progress begins."""

    LAST = "last"
    """With what is stored after its first member came."""
    FIRST = "first"
    """With the oldest message that the broker still holds."""
    TIMESTAMP = "timestamp"
    """With the first message stored at a time or later."""

    @property
    def wire_value(self) -> ConsumeFromWhere:
        """What a heartbeat calls it."""
        match self:
            case ConsumeFrom.LAST:
                return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
            case ConsumeFrom.FIRST:
                return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            case ConsumeFrom.TIMESTAMP:
                return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


CLIENT_MINIMUMS: Final[Mapping[str, int]] = MappingProxyType(
    {"timeout_ms": 1, "route_period_ms": 1, "heartbeat_period_ms": 1}
)

PRODUCER_MINIMUMS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "send_timeout_ms": 1,
        "try_timeout_ms": 1,
        "retry_times": 0,
        "detect_period_ms": 1,
        "detect_timeout_ms": 1,
        "linger_ms": 0,
        "close_timeout_ms": 0,
        "batch_bytes": 1,
        "body_size_max": 1,
        "compress_from": 0,
        "new_topic_queues": 1,
    }
)


class ClientConfig(CheckedConfig, frozen=True, kw_only=True):
    """What all clients have in common. Times are in ms, sizes in bytes."""

    timeout_ms: int = 3_000
    """Of one call that is not a send."""
    route_period_ms: int = 30_000
    """How often name servers are asked anew where topics live."""
    heartbeat_period_ms: int = 30_000
    """How often brokers hear that this client lives; after two silent minutes they forget it."""
    client_ip: str | None = None
    """The address in client and message ids; None finds this machine's own."""
    instance: str | None = None
    """The second half of the client id; None makes one that no other client has."""
    clock: Clock = SYSTEM_CLOCK
    """Tells the time: tests put one of theirs in its place."""
    rng: Random = msgspec.field(default_factory=Random)
    """Where the first turn falls: a seeded one makes a test repeatable."""
    access_key: str | None = None
    """Signs every request together with the secret key; None takes ROCKETMQ_ACCESS_KEY."""
    secret_key: str | None = None
    """Neither sent nor shown; None takes ROCKETMQ_SECRET_KEY."""
    security_token: str | None = None
    """Of temporary credentials, sent beside the access key; None takes ROCKETMQ_SECURITY_TOKEN."""
    tls: bool | str | Path | Tls | None = None
    """True, the file of the authority that signs the servers' certificates, or all there is to
    say; None is what ROCKETMQ_TLS says."""

    trace: bool = False
    """Whether to write into the trace topic what becomes of each message: `mqadmin
    queryMsgTraceById` and others show it. A trace that cannot be written is lost, nothing else."""
    trace_topic: str = TRACE_TOPIC
    """It has to exist: our brokers make it where `trace_topic` is set."""
    namespace: str | None = None
    """Put before the names of topics and groups (`namespace%topic`), and taken off again: clients
    of several namespaces do not see each other. Queues, and so receipts, show whole names."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, CLIENT_MINIMUMS)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """What is printed of it: not its secrets."""
        values = [(name, getattr(self, name)) for name in self.__struct_fields__]
        return [(name, "…" if value and name in _SECRETS else value) for name, value in values]


class ProducerConfig(ClientConfig, frozen=True, kw_only=True):
    """How a producer sends."""

    send_timeout_ms: int = 3_000
    """Of one send with all its tries."""
    try_timeout_ms: int | None = None
    """Of one try: after it the next one follows, if there is time; None lets it have all of it."""
    retry_times: int = 2
    """Tries after the first one; on another broker, when there is one and the order allows it."""
    retry_less_durable: bool = False
    """Whether a message that is stored, but not as durably as the broker's settings promise, is
    sent to another broker, too: it is there twice then."""
    selector: Selector | None = None
    """Chooses the queue of messages without an order key; None takes all queues in turn."""
    fault_tolerance: bool = False
    """Whether brokers that are slow or fail are gone around for a while."""
    fault_detector: bool = False
    """Whether brokers that could not be reached are probed, instead of tried with messages."""
    detect_period_ms: int = 2_000
    """Between two rounds of probes of brokers at fault."""
    detect_timeout_ms: int = 200
    """A probe without an answer after so long has failed."""
    linger_ms: int | None = None
    """Awaited sends are gathered into batches for so long; 0 gathers those that are made at one
    moment, None sends each message by itself."""
    close_timeout_ms: int = 10_000
    """How long a close waits for sends under way; those that linger leave at once."""
    batch_bytes: int = BATCH_BYTES_MAX
    """A batch that has gathered so many bytes leaves at once."""
    body_size_max: int = 4 * 1024 * 1024
    """Of one message, or of one batch: what brokers take by default."""
    compress_from: int = 4 * 1024
    """Bodies of this size and more are squeezed."""
    compression: Compression = Compression.ZLIB
    """Every client reads zlib; C++ and Go clients read nothing else."""
    compress_level: int = 5
    """From 0, quick, to what the compression takes at most: 9, or 22 of ZSTD."""
    new_topic_queues: int = 4
    """Queues on each broker of a topic that the first send creates."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, PRODUCER_MINIMUMS)
        if self.selector is not None and not callable(self.selector):
            raise ConfigError(f"selector: a function is wanted, not {self.selector!r}")
        if not 0 <= self.compress_level <= (highest := _LEVELS[self.compression]):
            raise ConfigError(f"compress_level: {self.compress_level} is not within 0 to {highest}")


CONSUMER_MINIMUMS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "concurrency": 1,
        "handler_limit_ms": 1,
        "retries_max": 0,
        "ordered_pause_ms": 0,
        "pull_count": 1,
        "pull_bytes": 1,
        "in_flight_max": 1,
        "in_flight_bytes_max": 1,
        "in_flight_span_max": 1,
        "save_period_ms": 1,
        "rebalance_period_ms": 1,
        "consume_timestamp_ms": 0,
        "suspend_ms": 0,
        "pull_timeout_ms": 1,
        "close_timeout_ms": 0,
    }
)
"""With less of these a consumer would stand still, or never rest."""


class ConsumerConfig(ClientConfig, frozen=True, kw_only=True):
    """How a consumer reads."""

    consume_from: ConsumeFrom = ConsumeFrom.LAST
    """Where a group begins that has no progress yet."""
    consume_timestamp_ms: int | None = None
    """For TIMESTAMP; None is half an hour before the start, as in Java."""
    message_model: MessageModel = MessageModel.CLUSTERING
    """Whether a group's members share the messages, or each gets all: BROADCASTING."""
    strategy: str | Strategy = "AVG"
    """Who gets which queues: all members of a group must use the same."""
    ordered: bool = False
    """One message of a queue at a time, in its order, on one member at a time."""
    concurrency: int = 20
    """Handlers at work at one time."""
    handler_limit_ms: int = HANDLER_LIMIT_MS
    """A handler of `run` that takes longer has failed. Not for ordered queues, as in Java."""
    retries_max: int | None = None
    """Of a message that fails, before it is a dead letter; None is what the group's settings say,
    or for ever when ordered."""
    ordered_pause_ms: int = 1_000
    """Before an ordered message whose handler failed is tried again."""
    auto_commit: bool = False
    """Whether a PullConsumer saves progress by itself; a PushConsumer always does."""
    offsets_dir: str | Path | None = None
    """Where broadcast progress is kept; None is the user's state folder."""
    pull_count: int = 256
    """Messages that one pull asks for; genuine brokers answer with 32 at most."""
    pull_bytes: int = 256 * 1024
    """Bytes of messages that one pull asks for; one message comes whatever its size."""
    sql_compatibility: bool = False
    """Whether a filter expression may be one that the genuine broker misreads: it is an error
    else."""
    suspend_ms: int = 15_000
    """How long the broker may keep a pull that finds nothing new."""
    pull_timeout_ms: int = 30_000
    """A pull without an answer after so long has failed: longer than `suspend_ms`."""
    invisible_ms: int = 60_000
    """For a PopConsumer: how long nobody else gets a message that it has taken."""
    pop_count: int = 32
    """Messages that one pop takes at most, which is as many as brokers give."""
    in_flight_max: int = IN_FLIGHT_MAX
    """Messages of one queue that are pulled and not handled yet, before no more are pulled."""
    in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX
    """Bytes of bodies of one queue that are pulled and not handled yet."""
    in_flight_span_max: int = SPAN_MAX
    """Between the lowest and the highest offset in flight; not for ordered queues."""
    save_period_ms: int = 5_000
    """How often progress is saved at the brokers."""
    rebalance_period_ms: int = REBALANCE_PERIOD_MS
    """How often a member looks at who is in its group; brokers say besides when that changes."""
    close_timeout_ms: int = 30_000
    """How long a close waits for handlers at work."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, CONSUMER_MINIMUMS)

    def check(self) -> None:
        """ConfigError for what can never work."""
        if self.message_model is MessageModel.LITE_SELECTIVE:
            raise ConfigError("message_model: CLUSTERING or BROADCASTING, others are not for us")
        strategy = self.find_strategy()
        if isinstance(strategy, MachineRoomStrategy) and not strategy.rooms:
            raise ConfigError("strategy: MACHINE_ROOM needs a room, without one it shares nothing")

    @property
    def limits(self) -> FlowLimits:
        """How much of one queue may be in flight."""
        return FlowLimits(
            count=self.in_flight_max,
            size=self.in_flight_bytes_max,
            span=None if self.ordered else self.in_flight_span_max,
        )

    @property
    def broker_strategy(self) -> str | None:
        """The name of a strategy that only brokers can work out; None when it is another one."""
        name = self.strategy
        return name if isinstance(name, str) and name in BROKER_DECIDED else None

    @property
    def strategy_name(self) -> str:
        """What operators know the strategy by."""
        return self.strategy if isinstance(self.strategy, str) else name_of(self.strategy)

    def find_strategy(self) -> Strategy | None:
        """The rule that `strategy` names, or is; None when the broker decides."""
        name = self.strategy
        if not isinstance(name, str):
            if not callable(name):
                raise ConfigError(f"strategy: a name or a function, not {type(name).__name__}")
            return name
        if name in BROKER_DECIDED:
            return None
        if name not in STRATEGIES:
            known = ", ".join([*STRATEGIES, *sorted(BROKER_DECIDED)])
            raise ConfigError(f"strategy: {name!r} is unknown; there is {known}")
        return STRATEGIES[name]


C = TypeVar("C", bound=ClientConfig)


def config_or_default(defaults: C, given: object) -> C:
    """The settings that were given, or the defaults for None; UsageError for anything else."""
    if given is None:
        return defaults
    if not isinstance(given, type(defaults)):
        raise UsageError(f"config: a {type(defaults).__name__}, not {given!r:.100}")
    return given


def resolve_name_servers(
    given: str | Sequence[str] | None, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The addresses to ask: as given, else as the environment says."""
    if given is None:
        if not (given := environ.get(NAMESRV_VARIABLE)):
            raise ConfigError(
                f"no name server given: pass 'HOST:9876', or set {NAMESRV_VARIABLE}; "
                "`roquet dev` starts one"
            )
        return parse_addresses(given, NAMESRV_VARIABLE)
    try:
        text = given if isinstance(given, str) else ";".join(given)
    except TypeError:
        raise ConfigError(f"namesrv: 'HOST:9876', or several such texts, not {given!r}") from None
    return parse_addresses(text, "namesrv")
