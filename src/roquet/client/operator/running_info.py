"""Running info: a member's settings, queues and rates, which operators ask for through brokers."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

from roquet.client.connection.session import Session
from roquet.client.metrics import HANDLED, IN_FLIGHT, QUEUES, RECEIVED, MetricSample
from roquet.client.reading.consume_rates import SAMPLE_MS, ConsumeRates
from roquet.client.reading.ordered_reader import OrderedReader
from roquet.client.reading.queue_reader import QueueReader
from roquet.client.rebalance.assigned_queues import AssignedQueues
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ConsumerData, HeartbeatData
from roquet.net.clock import every
from roquet.wire.calls.admin import client_forwarding
from roquet.wire.calls.admin.client_forwarding import PopInfo, QueueInfo, RunningInfo

MIB: Final = 1024 * 1024

VERSION_NAME: Final = "V5_5_0"
"""How Apache RocketMQ's tools name this client's version number (wire.codes.VERSION)."""

HIDDEN_SETTINGS: Final = frozenset({"access_key", "secret_key", "security_token"})
"""Settings that are secret."""


class ConsumerStatus:
    """The status of one consumer."""

    def __init__(
        self,
        session: Session,
        assigned_queues: AssignedQueues,
        rates: ConsumeRates,
        data: Callable[[], HeartbeatData],
    ) -> None:
        self._session = session
        self._clock = session.config.clock
        self._assigned_queues = assigned_queues
        self._rates = rates
        self._data = data
        self.popped: Callable[[], Mapping[MessageQueue, PopInfo]] = dict
        """Prefetched messages by queue; set by consumers that pop."""

    async def sample_forever(self) -> None:
        """Sample the consume rates periodically, for ever."""
        self._sample(self._clock.now_ms())
        await every(SAMPLE_MS, self._sample, self._clock)

    def _sample(self, now_ms: int) -> None:
        self._rates.sample(now_ms, self._in_flight())

    def progress(self, topic: str) -> dict[MessageQueue, int]:
        """The consumed offsets of a topic's assigned queues."""
        readers = self._assigned_queues.readers.items()
        return {q: reader.window.committable for q, reader in readers if q.topic == topic}

    def info(self, stacks: str | None) -> RunningInfo:
        """The running info now; `stacks` is the dump of threads, if wanted."""
        (data,) = self._data().consumer_data_set
        return RunningInfo(
            properties=_properties(self._session, data),
            subscription_set=sorted(
                data.subscription_data_set, key=lambda subscription: subscription.topic
            ),
            mq_table={q: self._queue(r) for q, r in sorted(self._assigned_queues.readers.items())},
            mq_pop_table=dict(self.popped()),
            status_table=self._rates.table(self._clock.now_ms(), self._in_flight()),
            jstack=stacks,
        )

    def samples(self) -> Iterator[MetricSample]:
        """Values of metrics that are counted anyway."""
        (data,) = self._data().consumer_data_set
        group, in_flight = data.group_name, self._in_flight()
        for topic, counts in self._rates.counts(in_flight).items():
            yield MetricSample(RECEIVED, (topic, group), counts.pulled)
            yield MetricSample(HANDLED, (topic, group, "ok"), counts.handled)
            yield MetricSample(HANDLED, (topic, group, "failed"), counts.failed)
        for topic, count in in_flight.items():
            yield MetricSample(IN_FLIGHT, (topic, group), count)
        queues = [*self._assigned_queues.readers, *self.popped()]
        for topic, count in Counter(queue.topic for queue in queues).items():
            yield MetricSample(QUEUES, (topic, group), count)

    def _in_flight(self) -> Mapping[str, int]:
        counts: Counter[str] = Counter()
        for queue, reader in list(self._assigned_queues.readers.items()):
            counts[queue.topic] += reader.window.count
        return counts

    def _queue(self, reader: QueueReader) -> QueueInfo:
        window, now_ms = reader.window, self._clock.now_ms()
        since_epoch = now_ms - self._clock.monotonic_ms()
        is_locked = isinstance(reader, OrderedReader)
        first, count = window.committable, window.count
        return QueueInfo(
            commit_offset=first,
            cached_msg_min_offset=first if count else 0,
            cached_msg_max_offset=first + window.span if count else 0,
            cached_msg_count=count,
            cached_size=window.size // MIB,
            locked=is_locked,
            last_lock_timestamp=now_ms if is_locked else 0,
            droped=not reader.is_held,
            last_pull_timestamp=reader.last_pull_ms + since_epoch,
            last_consume_timestamp=reader.observe_progress() + since_epoch,
        )


def _properties(session: Session, data: ConsumerData) -> dict[str, str]:
    """The settings without secrets, and the properties that Apache RocketMQ's tools show."""
    config: Any = session.config
    settings = {name: getattr(config, name) for name in config.__struct_fields__}
    texts = {_camel(n): _text(value) for n, value in settings.items() if n not in HIDDEN_SETTINGS}
    return {
        **{name: text for name, text in texts.items() if text is not None},
        "consumerGroup": data.group_name,
        client_forwarding.NAME_SERVERS: "".join(f"{address};" for address in session.addresses),
        client_forwarding.CONSUME_TYPE: data.consume_type.name,
        client_forwarding.CLIENT_VERSION: VERSION_NAME,
        client_forwarding.ORDERLY: str(getattr(config, "ordered", False)).lower(),
        client_forwarding.THREADS: str(getattr(config, "concurrency", 1)),
        client_forwarding.STARTED: str(session.started_ms),
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _text(value: object) -> str | None:
    """A setting as text; None for functions, clocks and other objects."""
    match value:
        case bool():
            return str(value).lower()
        case Enum():
            return value.name
        case str() | int():
            return str(value)
        case _:
            return None
