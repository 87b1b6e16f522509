"""Client metrics: counts of one or several clients, as a snapshot or for Prometheus.

    metrics = ClientMetrics()
    PushConsumer(group="billing", topic="orders", config=ConsumerConfig(metrics=metrics))

Of handler calls that take less than a millisecond one in 64 is timed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

from roquet.metrics.counts import Histogram, LabeledCounts, LabeledTallies, Tally
from roquet.metrics.metric import Metric, MetricType, counter, gauge, histogram

SERIES_MAX: Final = 1_000
"""Combinations of topics, groups and results of one metric; further ones are `other`."""

BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0)

SENT: Final = counter(
    "roquet_client_sent_messages_total",
    "Messages whose send ended, with result ok (stored) or failed.", "topic", "group", "result",
)  # fmt: skip
SEND_SECONDS: Final = histogram(
    "roquet_client_send_seconds",
    "Time of sends with all their tries; a batch counts once.", "topic", "group", bounds=BOUNDS_S,
)  # fmt: skip
RECEIVED: Final = counter(
    "roquet_client_received_messages_total", "Messages that pulls and pops brought.",
    "topic", "group",
)  # fmt: skip
HANDLED: Final = counter(
    "roquet_client_handled_messages_total",
    "Tries of messages that ended, with result ok or failed.",
    "topic", "group", "result",
)  # fmt: skip
DEAD_LETTERS: Final = counter(
    "roquet_client_dead_letters_total",
    "Failed messages that this client made dead letters, not those of which the broker did.",
    "topic", "group",
)  # fmt: skip
HANDLE_SECONDS: Final = histogram(
    "roquet_client_handle_seconds",
    "Time of handler calls, short ones by samples; a batch counts once.",
    "topic", "group", bounds=BOUNDS_S,
)  # fmt: skip
REBALANCES: Final = counter(
    "roquet_client_rebalances_total", "Rebalances, with result ok or failed.", "group", "result"
)
IN_FLIGHT: Final = gauge(
    "roquet_client_in_flight_messages", "Pulled messages that are not settled.", "topic", "group"
)
WAITING: Final = gauge(
    "roquet_client_waiting_messages", "Messages that wait for a handler or a read.", "group"
)
QUEUES: Final = gauge("roquet_client_queues", "Queues that are read.", "topic", "group")

METRICS: Final = (
    SENT, SEND_SECONDS, RECEIVED, HANDLED, DEAD_LETTERS, HANDLE_SECONDS, REBALANCES, IN_FLIGHT,
    WAITING, QUEUES,
)  # fmt: skip


class MetricSample(NamedTuple):
    """One value of a metric."""

    metric: Metric
    labels: tuple[str, ...]
    """One value for each label of the metric."""
    value: Any
    """A number, or a Histogram."""


SampleSource: TypeAlias = Callable[[], Iterable[MetricSample]]
"""Returns what a client counts anyway: counters since its start, and gauges."""


class SendSeries:
    """Counts and times of a group's sends to one topic, which are looked up once."""

    def __init__(self, metrics: "ClientMetrics", topic: str, group: str) -> None:
        self._metrics = metrics
        self._labels = topic, group
        self._stored = metrics.counter(SENT, topic, group, "ok")
        self._times = metrics.times(SEND_SECONDS, topic, group)

    def count(self, messages: int, took_ms: int, *, is_stored: bool) -> None:
        """Count a send that has ended, with all its tries."""
        if is_stored:
            self._stored.value += messages
        else:
            self._metrics.add(SENT, messages, *self._labels, "failed")
        self._times.observe(took_ms / 1_000)


class ClientMetrics:
    """Counts of the clients in whose settings it is; shared by those of one process.

    `collect` makes it a collector of prometheus_client: `REGISTRY.register(metrics)`.
    """

    def __init__(self) -> None:
        # By names, whose hash is computed once.
        self._tallies = {m.name: LabeledTallies(len(m.labels), SERIES_MAX) for m in METRICS}
        self._times = {
            m.name: LabeledCounts(partial(Histogram, m.bounds), len(m.labels), SERIES_MAX)
            for m in (SEND_SECONDS, HANDLE_SECONDS)
        }
        self._sources: list[SampleSource] = []

    def counter(self, metric: Metric, *labels: str) -> Tally:
        """One series of a counter."""
        return self._tallies[metric.name].of(*labels)

    def add(self, metric: Metric, count: float, *labels: str) -> None:
        """Add to a counter."""
        self.counter(metric, *labels).value += count

    def times(self, metric: Metric, *labels: str) -> Histogram:
        """One series of a histogram of seconds."""
        return self._times[metric.name].of(*labels)

    def send_series(self, topic: str, group: str) -> SendSeries:
        """The series of a group's sends to a topic."""
        return SendSeries(self, topic, group)

    def watch(self, source: SampleSource) -> None:
        """Add what a client that starts counts."""
        self._sources.append(source)

    def unwatch(self, source: SampleSource) -> None:
        """Remove a client that ends; its counters keep their values."""
        if source in self._sources:
            self._sources.remove(source)
            for metric, labels, value in source():
                if metric.type is MetricType.COUNTER:
                    self.add(metric, value, *labels)

    def samples(self) -> Iterator[MetricSample]:
        """All values now."""
        sums = {m: LabeledTallies(len(m.labels), SERIES_MAX) for m in METRICS}
        for metric, labels, value in self._values():
            sums[metric].add(*labels, count=value)
        for metric, tallies in sums.items():
            for labels, tally in tallies.items():
                yield MetricSample(metric, labels, tally.value)
        for metric in (SEND_SECONDS, HANDLE_SECONDS):
            for labels, times in self._times[metric.name].items():
                yield MetricSample(metric, labels, times)

    def _values(self) -> Iterator[MetricSample]:
        """Counters and gauges of all clients, several for one combination of labels."""
        for metric in METRICS:
            for labels, tally in self._tallies[metric.name].items():
                yield MetricSample(metric, labels, tally.value)
        for source in list(self._sources):
            yield from source()

    def snapshot(self) -> Mapping[str, float]:
        """All values by their names with labels, as Prometheus writes them."""
        lines = (line.rpartition(" ") for line in self.text().splitlines() if line[0] != "#")
        return {name: float(value) for name, _, value in lines}

    def text(self) -> str:
        """All values as a page for Prometheus, without another package."""
        from roquet.metrics.text_format import MetricsPage  # here: most clients show no page

        page = MetricsPage({})
        for metric, labels, value in self.samples():
            if isinstance(value, Histogram):
                page.add_histogram(metric, value, *labels)
            else:
                page.add(metric, value, *labels)
        return b"".join(page.chunks()).decode()

    def collect(self) -> Iterator[Any]:
        """The metric families for a registry of prometheus_client, which must be installed."""
        core = import_module("prometheus_client.core")
        kinds = {
            MetricType.COUNTER: core.CounterMetricFamily,
            MetricType.GAUGE: core.GaugeMetricFamily,
            MetricType.HISTOGRAM: core.HistogramMetricFamily,
        }
        families = {m: kinds[m.type](m.name, m.help, labels=m.labels) for m in METRICS}
        for metric, labels, value in self.samples():
            if isinstance(value, Histogram):
                bounds = [*map(str, metric.bounds), "+Inf"]
                totals = (sum(value.counts[: n + 1]) for n in range(len(bounds)))
                buckets = list(zip(bounds, totals, strict=True))
                families[metric].add_metric(labels, buckets, value.sum)
            else:
                families[metric].add_metric(labels, value)
        yield from families.values()
