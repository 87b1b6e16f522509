r"""Text format: metrics as Prometheus reads them, version 0.0.4.

    # HELP rocketmq_topic_number Topics of this broker.
    # TYPE rocketmq_topic_number gauge
    rocketmq_topic_number{cluster="c",node_id="broker-a",node_type="broker"} 32.0

In a label's value \, " and the line feed are escaped, in a help text \ and the line feed. Names
of topics and groups come from clients, so every value is escaped here and nowhere else.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from roquet.metrics.counts import Histogram
from roquet.metrics.metric import Metric, MetricType

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

LINES_COUNT: Final = 2_000
"""Lines of one chunk: about half a megabyte, which is put together in less than a millisecond."""


def escape_label(value: str) -> str:
    """A label's value, escaped. Control characters and surrogates become question marks."""
    if not value.isprintable():
        value = "".join(each if each.isprintable() or each == "\n" else "?" for each in value)
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def number_text(value: float) -> str:
    """A number as Prometheus reads it."""
    number = float(value)
    if math.isfinite(number):
        return repr(number)
    return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"


def heading(metric: Metric) -> str:
    """The two lines in front of the values of a metric."""
    text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {metric.name} {text}\n# TYPE {metric.name} {metric.type}\n"


class MetricsPage:
    """Values of metrics, collected in any order and written metric by metric."""

    def __init__(
        self, common: Mapping[str, str], rocketmq: Mapping[str, str] | None = None
    ) -> None:
        """Labels of all values, and further ones of metrics with Apache's names."""
        self._common = common
        self._rocketmq = {**common, **(rocketmq or {})}
        self._metrics: dict[str, Metric] = {}
        self._lines: dict[str, list[str]] = {}
        self._layouts: dict[tuple[str, tuple[str, ...]], _Layout] = {}
        self._escaped: dict[str, str] = {}
        """Values of labels, most of which stand in many lines."""

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value of a counter or gauge, with a value for each label of the metric.

        A label whose value is empty is left out, as Prometheus takes both to be the same.
        """
        assert metric.type is not MetricType.HISTOGRAM, "a histogram has several values"
        head = self._head(metric, "", labels)
        self._lines_of(metric).append(f"{head} {number_text(value)}\n")

    def add_histogram(self, metric: Metric, values: Histogram, *labels: str) -> None:
        """Add a histogram, with a value for each label of the metric."""
        lines, total = self._lines_of(metric), 0
        bounds = [*map(number_text, metric.bounds), "+Inf"]
        for bound, count in zip(bounds, values.counts, strict=True):
            total += count
            lines.append(f"{self._head(metric, '_bucket', labels, bound)} {total}\n")
        lines.append(f"{self._head(metric, '_count', labels)} {total}\n")
        lines.append(f"{self._head(metric, '_sum', labels)} {number_text(values.sum)}\n")

    def chunks(self) -> Iterator[bytes]:
        """The page, some thousand lines at a time, in the order of the metrics' names."""
        for name, lines in sorted(self._lines.items()):
            yield heading(self._metrics[name]).encode()
            for start in range(0, len(lines), LINES_COUNT):
                yield "".join(lines[start : start + LINES_COUNT]).encode()

    def _lines_of(self, metric: Metric) -> list[str]:
        lines = self._lines.get(metric.name)
        if lines is None:
            lines = self._lines[metric.name] = []
            self._metrics[metric.name] = metric
        return lines

    def _head(
        self, metric: Metric, suffix: str, values: Sequence[str], bound: str | None = None
    ) -> str:
        assert len(values) == len(metric.labels), f"{metric.name} has other labels"
        names = metric.labels
        if "" in values:
            names = tuple(n for n, value in zip(metric.labels, values, strict=True) if value)
            values = [value for value in values if value]
        layout = self._layouts.get((metric.name, names))
        if layout is None:
            layout = self._layouts[metric.name, names] = self._layout(metric, names)
        filled = layout.template % tuple(self._escape(values[index]) for index in layout.order)
        if bound is not None:
            filled += f'{"," if filled else ""}le="{bound}"'
        return f"{metric.name}{suffix}{{{filled}}}" if filled else f"{metric.name}{suffix}"

    def _escape(self, value: str) -> str:
        text = self._escaped.get(value)
        if text is None:
            text = self._escaped[value] = escape_label(value)
        return text

    def _layout(self, metric: Metric, names: Sequence[str]) -> "_Layout":
        is_rocketmq = metric.name.startswith("rocketmq_")
        common = self._rocketmq if is_rocketmq else self._common
        texts = {name: escape_label(text).replace("%", "%%") for name, text in common.items()}
        texts |= dict.fromkeys(names, "%s")
        return _Layout(
            template=",".join(f'{name}="{texts[name]}"' for name in sorted(texts)),
            order=tuple(sorted(range(len(names)), key=lambda index: names[index])),
        )


class _Layout(NamedTuple):
    """Labels of the values of a metric in alphabetical order."""

    template: str
    """With %s for the values of the metric's own labels."""
    order: tuple[int, ...]
    """Their places among the values that are given."""


PROCESS_LABEL = "process"


def merged(pages: Mapping[str, str]) -> Iterator[str]:
    """The lines of one page from the pages of processes by name, with line ends.

    A master and its replicas have equal labels, so each value gets one more: `process`. Help and
    type stand once, in front of the values of all processes, as the format asks for.

    A line that is no value and no heading is left out.
    """
    headings: dict[str, list[str]] = {}
    values: dict[str, list[str]] = {}
    for process, page in pages.items():
        label = f'{PROCESS_LABEL}="{escape_label(process)}"'
        metric = ""
        for line in page.split("\n"):
            if line.startswith(("# HELP ", "# TYPE ")):
                metric = line.split(" ", 3)[2]
                _note(headings.setdefault(metric, []), line)
            elif line and not line.startswith("#"):
                name = line.partition("{")[0].partition(" ")[0]
                of = metric if metric and name.startswith(metric) else name
                values.setdefault(of, []).append(_labeled(line, label))
    for metric in sorted(values):
        yield from (f"{line}\n" for line in headings.get(metric, ()))
        yield from values[metric]


def _note(lines: list[str], line: str) -> None:
    """Add a heading unless there is one of its kind: HELP and TYPE stand once each."""
    if all(line[:7] != known[:7] for known in lines):
        lines.append(line)


def _labeled(line: str, label: str) -> str:
    name, brace, rest = line.partition("{")
    if brace:
        return f"{name}{{{label},{rest}\n"
    name, _, value = line.partition(" ")
    return f"{name}{{{label}}} {value}\n"
