"""ClientConfig, ProducerConfig, ConsumerConfig: optional settings of clients, with their checks."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from enum import Enum
from os import PathLike
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from roquet.model.config_check import CheckedConfig, check_least
from roquet.model.errors import CodecMissing, ConfigError, UsageError
from roquet.model.message import Message
from roquet.model.names import TRACE_TOPIC
from roquet.model.queue import MessageQueue
from roquet.model.settings import parse_addresses
from roquet.model.subscription import ConsumeFromWhere, MessageModel
from roquet.net.clock import SYSTEM_CLOCK, Clock, clock_of_loop
from roquet.net.tls import Tls
from roquet.rules.consumption.pull import (
    IN_FLIGHT_BYTES_MAX,
    IN_FLIGHT_MAX,
    SPAN_MAX,
    FlowLimits,
)
from roquet.rules.replication.read_from import ReadFrom
from roquet.wire.records.compression import Compression, check_codec

if TYPE_CHECKING:
    from roquet.client.metrics import ClientMetrics
    from roquet.rules.allocate import Strategy
else:  # an import loads neither: the values of such settings are checked where they are used
    ClientMetrics = Strategy = Callable[..., Any]

Around: TypeAlias = Callable[[Any], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
"""A function that is called with what a handler is called with, or with what is sent. What it
returns is entered before the handler or send, and left after it with its exception, if there is
one."""

Backoff: TypeAlias = Callable[[int, BaseException | None], timedelta | float]
"""Chooses the pause after failed attempts: called with their number, from 1 on, and the last error,
None where there is none. Returns a timedelta or seconds, up to a day."""

NAMESRV_VARIABLE: Final = "NAMESRV_ADDR"
"""Environment variable with name server addresses; Apache RocketMQ's clients read it as well."""

HANDLER_LIMIT_MS: Final = 15 * 60_000
"""Time limit of one handler call, as in Java."""

BATCH_BYTES_MAX: Final = 256 * 1024
"""Bytes of one batch, which the broker stores in one step while others wait. A longer message is
sent alone."""

Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses one of a topic's queues for a message; see `client.sending.selectors`."""

_SECRETS: Final = frozenset({"secret_key", "security_token"})

_LEVELS: Final = {Compression.ZLIB: 9, Compression.LZ4: 16, Compression.ZSTD: 22}
"""The highest level that each library accepts."""


class ConsumeFrom(Enum):
    """Where a group starts to read that has no committed offset."""

    LAST = "last"
    """With messages stored after the group's first member started. Brokers let it begin at 0 while
    a queue's first message is still in their memory; `roquet group reset --to last` skips that."""
    FIRST = "first"
    """With the oldest message that the broker still has."""
    TIMESTAMP = "timestamp"
    """With the first message stored at or after a given time."""

    @property
    def wire_value(self) -> ConsumeFromWhere:
        """The value that heartbeats carry."""
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


class SpanProvider(Protocol):
    """A TracerProvider of OpenTelemetry."""

    def get_tracer(self, instrumenting_module_name: str, *args: Any, **named: Any) -> Any:
        """Return what makes the spans of one library."""


class ClientConfig(CheckedConfig, frozen=True, kw_only=True):
    """Settings of all clients. Times are in ms, sizes in bytes."""

    timeout_ms: int = 3_000
    """Timeout of one call, except for sends."""
    route_period_ms: int = 30_000
    """Period between two refreshes of topic routes from the name servers."""
    heartbeat_period_ms: int = 30_000
    """Period between two heartbeats to brokers, which forget a client after two silent minutes."""
    client_ip: str | None = None
    """The address in client and message ids; None detects this machine's own."""
    instance: str | None = None
    """The second half of the client id; None makes a unique one."""
    clock: Clock = SYSTEM_CLOCK
    """Source of time; the system's stands for the running event loop's own, if it has one, as in
    virtual time (`roquet.testing.clock`)."""
    rng: Random = msgspec.field(default_factory=Random)
    """Source of randomness, for example of the first queue to send to; seed it for a repeatable
    test."""
    access_key: str | None = None
    """Signs every request together with the secret key; None takes ROCKETMQ_ACCESS_KEY."""
    secret_key: str | None = None
    """Neither sent nor shown; None takes ROCKETMQ_SECRET_KEY."""
    security_token: str | None = None
    """Token of temporary credentials, sent with the access key; None takes
    ROCKETMQ_SECURITY_TOKEN."""
    tls: bool | str | PathLike[str] | Tls | None = None
    """True, the file with the certificate authority of the servers, or a complete `Tls`; None takes
    ROCKETMQ_TLS."""

    trace: bool = False
    """Write a record of each message's send and handling into the trace topic: `mqadmin
    queryMsgTraceById` and others show it. When a record cannot be written, it is lost and nothing
    else fails."""
    trace_topic: str = TRACE_TOPIC
    """The trace topic has to exist; Roquet's brokers create the one that their `trace_topic`
    names."""
    tracing: bool | SpanProvider | None = None
    """Make OpenTelemetry spans of sends, receives, handlers and settlements, and carry their
    context in the messages' properties. True takes the TracerProvider of the process; or give one.
    None makes spans under `opentelemetry-instrument`. Needs the extra `roquet[tracing]`."""
    metrics: ClientMetrics | None = None
    """Counts sends, receives, handlers and rebalances by topic and group, see
    `roquet.client.metrics`; one object may be in the settings of several clients."""
    namespace: str | None = None
    """Prefix of topic and group names (`namespace%topic`), removed again from what users see:
    clients of different namespaces do not see each other. Queues, and so receipts, show full
    names."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, CLIENT_MINIMUMS)
        if self.metrics is not None:
            from roquet.client.metrics import ClientMetrics

            if not isinstance(self.metrics, ClientMetrics):
                raise ConfigError(f"metrics: {self.metrics!r:.100} is not a ClientMetrics")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """The settings as printed, with secrets hidden."""
        values = [(name, getattr(self, name)) for name in self.__struct_fields__]
        return [(name, "…" if value and name in _SECRETS else value) for name, value in values]


class ProducerConfig(ClientConfig, frozen=True, kw_only=True):
    """Settings of a producer."""

    send_timeout_ms: int = 3_000
    """Time limit of one send, including all its attempts."""
    try_timeout_ms: int | None = None
    """Time limit of one attempt, after which the next one starts if time is left; None: the whole
    send timeout."""
    retry_times: int = 2
    """Attempts after the first one, on another broker if there is one and the message's order
    allows it."""
    backoff: Backoff | None = None
    """Chooses the pause before a send is tried again at the same broker; None: 100 ms, doubled up
    to 500 ms. The send's timeout still applies, and another broker is tried at once."""
    retry_less_durable: bool = False
    """Send a message again to another broker when it is stored less durably than the broker's
    settings promise. The message is then stored twice."""
    selector: Selector | None = None
    """Chooses the queue of messages without an order key; None takes all queues in turn."""
    fault_tolerance: bool = False
    """Avoid brokers that are slow or fail for a while."""
    fault_detector: bool = False
    """Probe unreachable brokers, instead of trying them with messages."""
    detect_period_ms: int = 2_000
    """Period between two rounds of probes of failed brokers."""
    detect_timeout_ms: int = 200
    """Timeout of one probe."""
    linger_ms: int | None = None
    """Time that awaited sends wait to form a batch; 0 batches those made in the same turn of the
    event loop, None sends each message by itself."""
    close_timeout_ms: int = 10_000
    """Time that a close waits for sends under way; lingering sends leave at once."""
    batch_bytes: int = BATCH_BYTES_MAX
    """A batch with this many bytes is sent without lingering further."""
    body_size_max: int = 4 * 1024 * 1024
    """Limit of one message and of one batch; brokers accept this much by default."""
    compress_from: int = 4 * 1024
    """Bodies of at least this size are compressed."""
    compression: Compression = Compression.ZLIB
    """Every client reads zlib; C++ and Go clients read nothing else."""
    compress_level: int = 5
    """From 0 (fast) to the highest level of the compression: 9 of ZLIB, 16 of LZ4, 22 of ZSTD."""
    new_topic_queues: int = 4
    """Queues on each broker of a topic that the first send creates."""
    around: Sequence[Around] = ()
    """Functions of a message that return context managers, as `contextlib.contextmanager` makes
    them: each is entered around every send, the first one outermost. `send_batch`, and each batch
    of `send_many`, give them their list of messages."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, PRODUCER_MINIMUMS)
        _check_around(self.around)
        if self.selector is not None and not callable(self.selector):
            raise ConfigError(f"selector: expected a function, not {self.selector!r}")
        _check_backoff(self.backoff)
        if not 0 <= self.compress_level <= (highest := _LEVELS[self.compression]):
            raise ConfigError(f"compress_level: {self.compress_level} is not within 0 to {highest}")
        try:
            check_codec(self.compression)
        except CodecMissing as error:
            raise ConfigError(f"compression: {error}") from error


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
"""Below these a consumer would stand still, or run without pause."""


class ConsumerConfig(ClientConfig, frozen=True, kw_only=True):
    """Settings of a consumer."""

    consume_from: ConsumeFrom = ConsumeFrom.LAST
    """Where a group starts to read that has no committed offset. Young queues are read from their
    first message in any case: brokers decide that, as Apache RocketMQ's do."""
    consume_timestamp_ms: int | None = None
    """The time for TIMESTAMP; None is half an hour before the start, as in Java."""
    read_from: ReadFrom = ReadFrom.SUGGESTED
    """Which broker of a name is read: MASTER, REPLICA, or the one that the last reply SUGGESTED.
    Each falls back on another one that is alive; offsets are committed at the master."""
    message_model: MessageModel = MessageModel.CLUSTERING
    """CLUSTERING: the group's members share the messages. BROADCASTING: each member gets all."""
    strategy: str | Strategy = "AVG"
    """Rule that allocates queues to members; all members of a group must use the same one."""
    ordered: bool = False
    """Handle the messages of a queue in order, one at a time, on one member at a time."""
    concurrency: int = 20
    """Number of handlers that run at the same time."""
    around: Sequence[Around] = ()
    """Functions of a message that return context managers, as `contextlib.contextmanager` makes
    them: each is entered around every call of a handler, the first one outermost. A handler of
    `run_batch` gives them its list of messages."""
    handler_limit_ms: int = HANDLER_LIMIT_MS
    """Time limit of one handler call of `run`, after which the message counts as failed. Ordered
    queues have no limit, as in Java."""
    retries_max: int | None = None
    """Retries of a failed message before it becomes a dead letter; None takes the group's settings,
    and retries an ordered message for ever."""
    backoff: Backoff | None = None
    """Chooses the pause before the next try of a failed message, unless `nack` names one. Called on
    the event loop with the number of failed tries and the handler's error. A PushConsumer rounds it
    up to the brokers' delay levels, from 1 s to 2 h, unless it is `ordered`."""
    ordered_pause_ms: int = 1_000
    """Pause before the retry of a failed ordered message."""
    auto_commit: bool = False
    """Let a PullConsumer commit offsets by itself; a PushConsumer always does."""
    offsets_dir: str | PathLike[str] | None = None
    """Folder of broadcast offsets; None is the user's state folder."""
    pull_count: int = 256
    """Messages to ask for in one pull; Apache RocketMQ's brokers return at most 32."""
    pull_bytes: int = 256 * 1024
    """Bytes of messages to ask for in one pull; at least one message is returned whatever its
    size."""
    sql_compatibility: bool = False
    """Accept filter expressions that Apache RocketMQ's broker misreads; otherwise they raise
    UsageError."""
    suspend_ms: int = 15_000
    """Time that the broker may hold a pull that finds no new message."""
    pull_timeout_ms: int = 30_000
    """Timeout of one pull; must be longer than `suspend_ms`."""
    invisible_ms: int = 60_000
    """For a PopConsumer: time that a taken message stays invisible to other members."""
    pop_count: int = 32
    """Messages to take in one pop; brokers return at most 32."""
    in_flight_max: int = IN_FLIGHT_MAX
    """Pulled and unhandled messages of one queue above which pulling pauses."""
    in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX
    """Body bytes of pulled and unhandled messages of one queue above which pulling pauses."""
    in_flight_span_max: int = SPAN_MAX
    """Distance from the lowest to the highest unhandled offset of a queue above which pulling
    pauses; does not apply to ordered queues."""
    save_period_ms: int = 5_000
    """Period between two commits of offsets to the brokers."""
    rebalance_period_ms: int = 20_000
    """Period between two rebalances; brokers also send a notice when members change."""
    close_timeout_ms: int = 30_000
    """Time that a close waits for running handlers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, CONSUMER_MINIMUMS)
        _check_around(self.around)
        _check_backoff(self.backoff)


def _check_backoff(backoff: object) -> None:
    if backoff is not None and not callable(backoff):
        raise ConfigError(f"backoff: expected a function, not {backoff!r:.100}")


def _check_around(around: object) -> None:
    if not isinstance(around, Sequence) or not all(map(callable, around)):
        raise ConfigError(f"around: several functions, as [f], not {around!r:.100}")


def flow_limits(config: ConsumerConfig) -> FlowLimits:
    """Flow control limits of one queue."""
    return FlowLimits(
        count=config.in_flight_max,
        size=config.in_flight_bytes_max,
        span=None if config.ordered else config.in_flight_span_max,
    )


C = TypeVar("C", bound=ClientConfig)


def config_or_default(kind: type[C], config: object) -> C:
    """The given settings, or the defaults for None; UsageError for a value of another type.

    Their clock is that of the running event loop, if they name no other and it has one.
    """
    if config is None:
        config = kind()
    if not isinstance(config, kind):
        raise UsageError(f"config: a {kind.__name__}, not {config!r:.100}")
    clock = clock_of_loop(config.clock)
    return config if clock is config.clock else msgspec.structs.replace(config, clock=clock)


def resolve_name_servers(
    namesrv: str | Sequence[str] | None, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Addresses of name servers, by argument or else environment; ConfigError without any."""
    if namesrv is None:
        if not (namesrv := environ.get(NAMESRV_VARIABLE)):
            raise ConfigError(
                f"no name server given: pass 'HOST:9876', or set {NAMESRV_VARIABLE}; "
                "`roquet dev` starts one"
            )
        return parse_addresses(namesrv, NAMESRV_VARIABLE)
    try:
        text = namesrv if isinstance(namesrv, str) else ";".join(namesrv)
    except TypeError:
        raise ConfigError(f"namesrv: 'HOST:9876', or several such texts, not {namesrv!r}") from None
    return parse_addresses(text, "namesrv")
