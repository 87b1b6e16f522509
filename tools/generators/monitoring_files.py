"""examples/monitoring/: alert rules for Prometheus and a board for Grafana, from the metric table.

python tools/generators/monitoring_files.py            prints their names
python tools/generators/monitoring_files.py --write    writes them

Expressions name metrics by `{name}` of a Metric below, so that none can be misspelt.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

from roquet.metrics import rocketmq_metrics as rocketmq
from roquet.metrics import roquet_metrics as roquet
from roquet.metrics.metric import Metric

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "monitoring"
ALERTS = FOLDER / "roquet-alerts.yml"
BOARD = FOLDER / "roquet-board.json"

GENERATED = "# `make map` generates this file by tools/generators/monitoring_files.py.\n"

PANEL_WIDTH, PANEL_HEIGHT = 12, 8


class Alert(NamedTuple):
    """A rule: it fires once its expression has had a result for `wait`."""

    name: str
    severity: str
    """`critical`: somebody has to look now; `warning`: today."""
    wait: str
    expression: str
    summary: str
    """One line, with the labels of the series in double braces."""
    action: str
    """Next steps: where to look, and a remedy."""


class Panel(NamedTuple):
    """A graph of the board."""

    title: str
    unit: str
    """Grafana's name of the unit."""
    expressions: dict[str, str]
    """Expressions by legend, which may name labels in double braces."""


def quantile(metric: Metric, *by: str, q: float = 0.99) -> str:
    """An expression for a quantile of a histogram in the last five minutes."""
    labels = ", ".join(("le", "node_id", *by))
    return f"histogram_quantile({q}, sum by ({labels}) (rate({metric.name}_bucket[5m])))"


def grown(metric: Metric) -> str:
    """An expression for the series of a counter that grew in the last ten minutes.

    A series that appears with its first count has not grown for Prometheus: it counts as well, of a
    page that was read ten minutes ago. All series of a page that is read for the first time do not.
    """
    new = f"{metric.name} unless {metric.name} offset 10m"
    known = f"on (job, instance) {roquet.BUILD_INFO.name} offset 10m"
    return f"increase({metric.name}[10m]) > 0 or ({new}) > 0 and {known}"


_GROUP = "(cluster, node_id, consumer_group)"

PROGRESS_UP_S, PROGRESS_S = 1200, 600
"""Progress counts once a page is so old: when it is new, all groups seem to have made some."""

PUBLISHED = (
    f"(min_over_time(({roquet.GROUP_IDLE.name} and ignoring (consumer_group, topic)"
    f" {roquet.UPTIME.name} > {PROGRESS_UP_S}"
    f" and {roquet.GROUP_IDLE.name} offset 20m)[1d:5m]) < {PROGRESS_S}"
    f" and on {_GROUP} max by {_GROUP} (max_over_time({roquet.GROUP_ONLINE.name}[25h])) == 0)"
)
"""Groups that made progress within a day and had no member all the time: a Spark job publishes its
own as theirs. The hour more is for a group whose last member has just left after progress. A group
that Prometheus has known for less than 20 minutes seems to have made some; every sample of members
counts, since one may have been there for minutes only."""

UNLESS_PUBLISHED = f"unless on (cluster, node_id, consumer_group, topic) {PUBLISHED}"

ALERT_RULES = (
    Alert(
        "RoquetProcessDown", "critical", "1m", f"{roquet.PROCESS_UP.name} == 0",
        "{{ $labels.process }} shows no metrics",
        "roquet serve starts a process again that has died; its log in DATA/logs says why it did.",
    ),
    Alert(
        "RoquetPageNotRead", "critical", "1m",
        f"up == 0 and on (job, instance) last_over_time({roquet.BUILD_INFO.name}[1d])",
        "{{ $labels.instance }} shows no metrics any more",
        "The server is down, or Prometheus cannot reach it. One that is gone for good leaves the"
        " targets of Prometheus.",
    ),
    Alert(
        "RoquetRefusesMessages", "critical", "1m", f"{roquet.STORE_FAILED.name} == 1",
        "{{ $labels.node_id }} takes no messages",
        "The disk is full or has failed: free space, or restart the broker once the disk is well.",
    ),
    Alert(
        "RoquetDiskAlmostFull", "warning", "10m",
        f"{roquet.DISK_USED.name} > 0.95 * {roquet.DISK_LIMIT.name}",
        "the disk of {{ $labels.node_id }} is almost full",
        "Lower fileReservedTime, add space, or see who else fills the disk: at"
        " diskSpaceWarningLevelRatio no messages are taken.",
    ),
    Alert(
        "RoquetEventLoopLate", "warning", "5m", f"{quantile(roquet.LOOP_LAG)} > 0.25",
        "the event loop of {{ $labels.node_id }} is late",
        "One core is not enough, or a request holds up the others: see"
        " roquet_request_seconds_total by code and the log; add a broker.",
    ),
    Alert(
        "RoquetFlushSlow", "warning", "5m", f"{quantile(roquet.FLUSH_TIME)} > 1",
        "flushes of {{ $labels.node_id }} take over a second",
        "The disk is slow or shared: senders that wait for it wait as long.",
    ),
    Alert(
        "RoquetRequestsNearLimit", "warning", "2m",
        f"{roquet.WAITING_REQUESTS.name} > 0.8 * {roquet.WAITING_REQUESTS_LIMIT.name}",
        "{{ $labels.node_id }}: almost as many {{ $labels.kind }} requests wait as may",
        "Further ones are refused as busy. Find the clients that do not end, or raise the limit.",
    ),
    Alert(
        "RoquetRequestsFail", "warning", "5m",
        f'rate({rocketmq.RPC_LATENCY.name}_count{{result="process_request_failed"}}[5m]) > 0',
        "{{ $labels.node_id }} answers {{ $labels.request_code }} with a fault of its own",
        "The log has the traceback: report it.",
    ),
    Alert(
        "RoquetGroupStalled", "critical", "5m",
        f"{roquet.GROUP_IDLE.name} > 300 and {roquet.GROUP_LAG.name} > 0 {UNLESS_PUBLISHED}",
        "{{ $labels.consumer_group }} makes no progress in {{ $labels.topic }}",
        "roquet group show GROUP says who owns which queue; a handler hangs, or nobody is there.",
    ),
    Alert(
        "RoquetGroupLosesMessages", "critical", "1m", f"{roquet.GROUP_RETENTION.name} < 6 * 3600",
        "{{ $labels.consumer_group }} falls off retention in {{ $labels.topic }} within six hours",
        "Unread messages are deleted then: add members, or raise fileReservedTime.",
    ),
    Alert(
        "RoquetRetentionTookUnread", "critical", "0m", grown(roquet.RETENTION_UNREAD),
        "retention took messages of {{ $labels.topic }}, unread by: {{ $labels.consumer_group }}",
        "The broker's log says how many, and why. Raise fileReservedTime or add"
        " space, add members, or delete a group that nobody needs any more; without"
        " cleanFileForciblyEnable a full disk takes none. With no group nobody reads the topic, or"
        " the messages waited to be delivered.",
    ),
    Alert(
        "RoquetGroupOffline", "warning", "10m",
        # Members are connected to the master: at a replica a group has none.
        f"{roquet.GROUP_LAG.name} > 0 and on {_GROUP}"
        f" max by {_GROUP} ({roquet.GROUP_ONLINE.name}) == 0 {UNLESS_PUBLISHED}",
        "{{ $labels.consumer_group }} has messages in {{ $labels.topic }} and no member online",
        "Start its members, or delete the group if nobody needs it any more. If a Spark job"
        " publishes its progress as the group's, none has run for a day.",
    ),
    Alert(
        "RoquetDeadLetters", "warning", "0m",
        grown(rocketmq.SEND_TO_DLQ),
        "messages of {{ $labels.consumer_group }} become dead letters",
        "roquet dlq show GROUP says which; roquet dlq resend GROUP --all brings them back.",
    ),
    Alert(
        "RoquetSetAside", "warning", "0m", grown(roquet.SET_ASIDE),
        "{{ $labels.node_id }} set messages aside that {{ $labels.service }} cannot handle",
        "roquet set-aside ls says which, and why.",
    ),
    Alert(
        "RoquetTooFewLogsInSync", "critical", "1m",
        f"{roquet.IN_SYNC.name} < {roquet.IN_SYNC_NEEDED.name}",
        "{{ $labels.node_id }} has too few logs in sync: senders wait, or are refused",
        "roquet cluster replicas shows which replica is away or behind.",
    ),
    Alert(
        "RoquetReplicaBehind", "warning", "5m", f"{roquet.REPLICA_LAG.name} > 256 * 1024 * 1024",
        "the replica {{ $labels.replica }} of {{ $labels.node_id }} is behind",
        "Its disk or network is too slow for what is sent.",
    ),
    Alert(
        "RoquetReplicaDisconnected", "warning", "2m", f"{roquet.REPLICA_CONNECTED.name} == 0",
        "a replica of {{ $labels.node_id }} has no connection to its master",
        "Its log says why; haMasterAddress and the port above the master's are what it needs.",
    ),
    Alert(
        "RoquetNoMaster", "critical", "1m",
        f"max by (cluster, node_id) ({roquet.IS_MASTER.name}) == 0",
        "no master of {{ $labels.node_id }} takes messages",
        "roquet cluster replicas says who may be elected.",
    ),
    Alert(
        "RoquetNoControllerLeads", "critical", "1m", f"max({roquet.IS_LEADER.name}) == 0",
        "no controller leads",
        "Lost masters are not replaced: look at the controllers' logs, and at etcd.",
    ),
    Alert(
        "RoquetMetricsOverflow", "warning", "0m", f"increase({roquet.OVERFLOW.name}[1h]) > 0",
        "{{ $labels.node_id }} counts some topics or groups together as other",
        "There are more than metrics have room for; look for clients that invent names.",
    ),
)  # fmt: skip


def rate(metric: Metric, *by: str, where: str = "") -> str:
    """An expression for a rate a second of a counter, summed."""
    return f"sum by ({', '.join(by)}) (rate({metric.name}{{{FILTER}{where}}}[5m]))"


def increase(metric: Metric) -> str:
    """An expression for the growth of a counter of the chosen nodes in an hour."""
    return f"increase({metric.name}{{{FILTER}}}[1h])"


def shown(metric: Metric) -> str:
    """An expression for the values of a metric of the chosen nodes."""
    return f"{metric.name}{{{FILTER}}}"


FILTER = 'node_id=~"$node"'

BOARD_ROWS: dict[str, tuple[Panel, ...]] = {
    "Traffic": (
        Panel("Messages in", "cps", {"{{topic}}": rate(rocketmq.MESSAGES_IN, "topic")}),
        Panel("Messages out", "cps", {
            "{{consumer_group}}": rate(rocketmq.MESSAGES_OUT, "consumer_group")}),
        Panel("Bytes", "Bps", {
            "in {{node_id}}": rate(rocketmq.THROUGHPUT_IN, "node_id"),
            "out {{node_id}}": rate(rocketmq.THROUGHPUT_OUT, "node_id")}),
        Panel("Requests", "reqps", {"{{request_code}}": rate(roquet.REQUESTS, "request_code")}),
    ),
    "Groups": (
        Panel("Lag", "short", {"{{consumer_group}} {{topic}}": shown(roquet.GROUP_LAG)}),
        Panel("Age of the first message that is not committed", "s", {
            "{{consumer_group}} {{topic}}": shown(roquet.GROUP_LAG_TIME)}),
        Panel("Time since the last progress", "s", {
            "{{consumer_group}} {{topic}}": shown(roquet.GROUP_IDLE)}),
        Panel("Time until retention deletes what is not read", "s", {
            "{{consumer_group}} {{topic}}": shown(roquet.GROUP_RETENTION)}),
        Panel("Messages that retention took unread", "short", {
            "{{consumer_group}} {{topic}}": increase(roquet.RETENTION_UNREAD)}),
        Panel("Dead letters", "cps", {
            "{{consumer_group}}": rate(rocketmq.SEND_TO_DLQ, "consumer_group")}),
        Panel("Rebalances", "cps", {
            "{{consumer_group}}": rate(roquet.REBALANCES, "consumer_group")}),
    ),
    "Brokers": (
        Panel("Event loop lag, 99 %", "s", {"{{node_id}}": quantile(roquet.LOOP_LAG)}),
        Panel("Time of requests, s/s", "percentunit", {
            "{{request_code}}": rate(roquet.REQUEST_TIME, "request_code")}),
        Panel("Flush, 99 %", "s", {"{{node_id}}": quantile(roquet.FLUSH_TIME)}),
        Panel("Waiting requests", "short", {
            "{{node_id}} {{kind}}": shown(roquet.WAITING_REQUESTS)}),
        Panel("Processor", "percentunit", {"{{node_id}}": rate(roquet.CPU_TIME, "node_id")}),
        Panel("Major page faults", "cps", {
            "{{node_id}}": rate(roquet.PAGE_FAULTS, "node_id", where=', kind="major"')}),
        Panel("Disk in use", "percentunit", {
            "{{node_id}}": shown(roquet.DISK_USED), "limit": shown(roquet.DISK_LIMIT)}),
        Panel("Connections", "short", {"{{node_id}}": shown(roquet.CONNECTIONS)}),
    ),
    "Replicas": (
        Panel("Logs in sync", "short", {
            "{{node_id}}": shown(roquet.IN_SYNC), "needed": shown(roquet.IN_SYNC_NEEDED)}),
        Panel("Behind the master", "bytes", {
            "{{node_id}} {{replica}}": shown(roquet.REPLICA_LAG)}),
    ),
    "Timers and transactions": (
        Panel("Messages that wait for their time", "short", {
            "{{topic}}": shown(rocketmq.TIMING_MESSAGES)}),
        Panel("Transactions", "cps", {
            "committed {{topic}}": rate(rocketmq.COMMIT_MESSAGES, "topic"),
            "rolled back {{topic}}": rate(rocketmq.ROLLBACK_MESSAGES, "topic")}),
    ),
}  # fmt: skip
"""Panels by row of the board."""


def alerts() -> str:
    """The alert rules, as YAML whose texts are quoted as in JSON."""
    lines = [GENERATED, "groups:\n", "  - name: roquet\n", "    rules:\n"]
    for alert in ALERT_RULES:
        lines += (
            f"      - alert: {alert.name}\n",
            f"        expr: {json.dumps(alert.expression)}\n",
            f"        for: {alert.wait}\n",
            "        labels:\n",
            f"          severity: {alert.severity}\n",
            "        annotations:\n",
            f"          summary: {json.dumps(alert.summary)}\n",
            f"          description: {json.dumps(alert.action)}\n",
        )
    return "".join(lines)


def panels() -> Iterator[dict[str, Any]]:
    """Rows and graphs of the board, two graphs beside each other."""
    number, top = 0, 0
    for title, row in BOARD_ROWS.items():
        number += 1
        place = {"h": 1, "w": 2 * PANEL_WIDTH, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": title, "gridPos": place, "panels": []}
        top += 1
        for index, panel in enumerate(row):
            number += 1
            place = {"h": PANEL_HEIGHT, "w": PANEL_WIDTH, "x": index % 2 * PANEL_WIDTH, "y": top}
            yield _graph(number, panel, place)
            top += PANEL_HEIGHT if index % 2 or index == len(row) - 1 else 0


def _graph(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "gridPos": place,
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": letter, "datasource": source, "expr": text, "legendFormat": name}
            for letter, (name, text) in zip(
                ascii_uppercase, panel.expressions.items(), strict=False
            )
        ],
    }


def board() -> str:
    """The board, as Grafana imports it."""
    source = {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}
    node = {
        "name": "node",
        "label": "Server",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": f"label_values({roquet.BUILD_INFO.name}, node_id)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }
    content = {
        "title": "Roquet",
        "uid": "roquet",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source, node]},
        "panels": list(panels()),
    }
    return json.dumps(content, indent=1) + "\n"


def files() -> dict[Path, str]:
    """The content of each generated file."""
    return {ALERTS: alerts(), BOARD: board()}


def main() -> None:
    """Print the names of the files, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="into their places")
    is_written = parser.parse_args().write
    for path, text in files().items():
        print(path.relative_to(ROOT))
        if is_written:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
