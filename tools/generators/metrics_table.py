"""docs/reference/metrics.md: every metric with its type, labels and meaning.

python tools/generators/metrics_table.py            prints the document
python tools/generators/metrics_table.py --write    writes it
"""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from roquet.metrics.counts import OTHER, SERIES_MAX
from roquet.metrics.metric import BROKER, Metric, MetricType
from roquet.metrics.rocketmq_metrics import LEFT_OUT, ROCKETMQ_METRICS
from roquet.metrics.roquet_metrics import ROQUET_METRICS
from settings_table import code, row

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "reference" / "metrics.md"

HEAD = f"""\
# Metrics

This page is generated: `make map` writes it anew. [Observe a cluster](../howto/observe.md) says how
to switch metrics on.

All values have the labels `node_type` (`broker`, `namesrv`, `controller`, `proxy`) and `node_id` (a
broker's name, another server's address); a broker's have its `cluster`, too, and those with
Apache's names `otel_scope_name`. A page of `roquet serve` has `process`. Counters begin at 0 with
the process. A metric has up to {SERIES_MAX:,} combinations of labels; whatever comes beyond is
counted in one series whose labels are `{OTHER}`, and `roquet_metrics_overflow_total` tells how
often.

## With Apache's names

Names, types, labels, units and buckets are those of Apache RocketMQ 5.5's brokers, so that existing
boards work. Some of the names say something else than they have: there the table says in capitals
what it is, and there is one of Roquet that is right. What differs:

- `is_retry` of `rocketmq_messages_out_total` and `rocketmq_throughput_out_total` is always there;
  Apache's pulls lack it.
- `rocketmq_rpc_latency_milliseconds` begins when a request is served. Apache's begins when it is
  read; here the wait in between is in `roquet_event_loop_lag_seconds`. Of frequent requests that
  are answered at once one in sixteen is timed, and the others count with its time.
- A request code that RocketMQ does not know is `other`, not the number: clients may send any.
- The internal readers of Apache's broker (`CID_RMQ_SYS_TRANS` and others) are no groups here and
  have no series.

| metric | type | labels | meaning |
|---|---|---|---|
"""

OWN_HEAD = """
## Of Roquet

`servers` says which pages have it.

| metric | type | labels | meaning | servers |
|---|---|---|---|---|
"""

LEFT_OUT_HEAD = """
## Metrics of Apache's brokers that are not shown

| metric | why |
|---|---|
"""

TAIL = """
Those of RocksDB queues and the tiered store belong to parts that Roquet does not have. Those of
Apache's controller have names like `role`, which say too little beside others.
"""


def labels_of(metric: Metric) -> str:
    """The labels of a metric, and the buckets of a histogram."""
    labels = " ".join(map(code, metric.labels))
    if metric.type is MetricType.HISTOGRAM:
        bounds = " ".join(f"{bound:g}" for bound in metric.bounds)
        return f"{labels} le: {bounds}".strip()
    return labels


def rows(metrics: Iterable[Metric], *, with_servers: bool) -> Iterator[str]:
    """A row for each metric, in alphabetical order."""
    for metric in sorted(metrics, key=lambda metric: metric.name):
        servers = "" if metric.nodes == BROKER else ", ".join(metric.nodes)
        cells = [code(metric.name), metric.type.value, labels_of(metric), metric.help]
        yield row(*cells, servers or "broker") if with_servers else row(*cells)


def drawn() -> str:
    """The whole document."""
    left_out = "".join(row(code(name), reason) for name, reason in sorted(LEFT_OUT.items()))
    genuine = "".join(rows(ROCKETMQ_METRICS, with_servers=False))
    own = "".join(rows(ROQUET_METRICS, with_servers=True))
    return f"{HEAD}{genuine}{OWN_HEAD}{own}{LEFT_OUT_HEAD}{left_out}{TAIL}"


def main() -> None:
    """Print the document, or write it into its place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="into its place, not printed")
    if parser.parse_args().write:
        DOCUMENT.write_text(drawn(), "utf-8")
    else:
        print(drawn())


if __name__ == "__main__":
    main()
