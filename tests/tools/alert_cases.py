"""Alert cases: for each alert series that are well, then ill, then well again, for promtool.

minutes   0 ──── 15 ───────────── 60 ─────────────────── 180
          well   │ ill            │ well again
                 └ the alert fires at 55, and is over at 175
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from monitoring_files import Alert
from roquet.metrics import rocketmq_metrics as rocketmq
from roquet.metrics import roquet_metrics as roquet
from roquet.metrics.metric import Metric, MetricType

ILL_MINUTE, WELL_MINUTE, END_MINUTE = 15, 60, 180
FIRING_MINUTE, OVER_MINUTE = 55, 175

Labels = Mapping[str, str]

GONE: Final = float("nan")
"""Stands for a series that is not there."""

NODE: Final[Labels] = {"cluster": "c", "node_type": "broker", "node_id": "broker-a"}
MEMBERS: Final[Labels] = {**NODE, "consumer_group": "billing"}
GROUP: Final[Labels] = {**NODE, "consumer_group": "billing", "topic": "orders"}
KIND: Final[Labels] = {**NODE, "kind": "pull"}


class AlertSeries(NamedTuple):
    """A series of one metric, by minutes."""

    metric: Metric
    labels: Labels
    well: float
    """Value of a gauge, or growth of a counter in a minute, while all is well."""
    ill: float
    suffix: str = ""

    @property
    def name(self) -> str:
        """The series as promtool writes it."""
        labels = ",".join(f"{name}={json.dumps(value)}" for name, value in self.labels.items())
        return f"{self.metric.name}{self.suffix}{{{labels}}}"

    @property
    def values(self) -> str:
        """One value for each minute; `_` where there is none."""
        values, total = [], 0.0
        for minute in range(END_MINUTE + 1):
            value = self.ill if ILL_MINUTE <= minute < WELL_MINUTE else self.well
            if value is GONE:
                values.append("_")
                continue
            if self.metric.type is not MetricType.GAUGE:
                total += value
                value = total
            values.append(f"{value:g}" if value == int(value) else repr(value))
        return " ".join(values)


class AlertCase(NamedTuple):
    """The series of one alert, and the labels that it fires with."""

    series: Sequence[AlertSeries]
    labels: Labels


def always(metric: Metric, labels: Labels, value: float) -> AlertSeries:
    """A gauge that does not change."""
    return AlertSeries(metric, labels, value, value)


def slow(metric: Metric, bound: float) -> AlertCase:
    """A histogram whose values are below a bound while all is well, and above it otherwise."""
    below = AlertSeries(metric, {**NODE, "le": f"{bound:g}"}, 600, 0, "_bucket")
    largest = AlertSeries(metric, {**NODE, "le": f"{metric.bounds[-1]:g}"}, 600, 600, "_bucket")
    total = AlertSeries(metric, {**NODE, "le": "+Inf"}, 600, 600, "_bucket")
    return AlertCase((below, largest, total), {"node_id": "broker-a"})


def simple(metric: Metric, labels: Labels, well: float, ill: float) -> AlertCase:
    """One series, whose labels the alert has."""
    return AlertCase((AlertSeries(metric, labels, well, ill),), labels)


TARGET: Final[Labels] = {"job": "roquet", "instance": "10.0.0.1:5557"}

UP: Final = Metric("up", MetricType.GAUGE, "Whether Prometheus could read a page.")
"""Made by Prometheus itself."""

FAILED: Final = {**NODE, "request_code": "send_message_v2", "result": "process_request_failed"}
DEAD: Final = {**GROUP, "is_system": "false"}

CASES: Final[Mapping[str, AlertCase]] = {
    "RoquetProcessDown": simple(roquet.PROCESS_UP, {"process": "broker-a"}, 1, 0),
    "RoquetPageNotRead": AlertCase(
        (
            AlertSeries(UP, TARGET, 1, 0),
            always(UP, {"job": "other", "instance": "10.0.0.9:9100"}, 0),
            AlertSeries(roquet.BUILD_INFO, TARGET, 1, GONE),
        ),
        TARGET,
    ),
    "RoquetRefusesMessages": simple(roquet.STORE_FAILED, NODE, 0, 1),
    "RoquetDiskAlmostFull": AlertCase(
        (AlertSeries(roquet.DISK_USED, NODE, 0.5, 0.89), always(roquet.DISK_LIMIT, NODE, 0.9)),
        NODE,
    ),
    "RoquetEventLoopLate": slow(roquet.LOOP_LAG, 0.1),
    "RoquetFlushSlow": slow(roquet.FLUSH_TIME, 0.1),
    "RoquetRequestsNearLimit": AlertCase(
        (
            AlertSeries(roquet.WAITING_REQUESTS, KIND, 10, 90_000),
            always(roquet.WAITING_REQUESTS_LIMIT, KIND, 100_000),
        ),
        KIND,
    ),
    "RoquetRequestsFail": AlertCase(
        (AlertSeries(rocketmq.RPC_LATENCY, FAILED, 0, 1, "_count"),), FAILED
    ),
    "RoquetGroupStalled": AlertCase(
        (AlertSeries(roquet.GROUP_IDLE, GROUP, 1, 400), always(roquet.GROUP_LAG, GROUP, 7)), GROUP
    ),
    "RoquetGroupLosesMessages": simple(roquet.GROUP_RETENTION, GROUP, 90_000, 7_200),
    "RoquetGroupOffline": AlertCase(
        (
            always(roquet.GROUP_LAG, GROUP, 7),
            AlertSeries(roquet.GROUP_ONLINE, {**MEMBERS, "instance": "a"}, 1, 0),
            always(roquet.GROUP_ONLINE, {**MEMBERS, "instance": "b"}, 0),  # a replica
        ),
        GROUP,
    ),
    "RoquetDeadLetters": simple(rocketmq.SEND_TO_DLQ, DEAD, 0, 1),
    "RoquetRetentionTookUnread": simple(roquet.RETENTION_UNREAD, GROUP, 0, 1),
    "RoquetSetAside": simple(roquet.SET_ASIDE, {**NODE, "service": "timer"}, 0, 1),
    "RoquetTooFewLogsInSync": AlertCase(
        (AlertSeries(roquet.IN_SYNC, NODE, 3, 1), always(roquet.IN_SYNC_NEEDED, NODE, 2)), NODE
    ),
    "RoquetReplicaBehind": simple(
        roquet.REPLICA_LAG, {**NODE, "replica": "10.0.0.2:40000"}, 0, 300 << 20
    ),
    "RoquetReplicaDisconnected": simple(roquet.REPLICA_CONNECTED, NODE, 1, 0),
    "RoquetNoMaster": AlertCase(
        (
            AlertSeries(roquet.IS_MASTER, {**NODE, "instance": "a"}, 1, 0),
            always(roquet.IS_MASTER, {**NODE, "instance": "b"}, 0),
        ),
        {"cluster": "c", "node_id": "broker-a"},
    ),
    "RoquetNoControllerLeads": AlertCase(
        (
            AlertSeries(roquet.IS_LEADER, {"node_id": "10.0.0.1:9878"}, 1, 0),
            always(roquet.IS_LEADER, {"node_id": "10.0.0.2:9878"}, 0),
        ),
        {},
    ),
    "RoquetMetricsOverflow": simple(roquet.OVERFLOW, NODE, 0, 1),
}
"""By alert."""


DAY_MINUTES: Final = 1440


class GroupHistory(NamedTuple):
    """A day of a group that is behind, and at which minutes both alerts of groups fire or not."""

    name: str
    idle_minutes: Sequence[int]
    """By minutes: how long ago the last progress was, as the broker shows it."""
    online: Sequence[int]
    uptime_minutes: Sequence[int]
    firing: Mapping[int, bool]

    @property
    def test(self) -> Mapping[str, object]:
        """The history as a test of promtool."""
        values = {
            AlertSeries(roquet.GROUP_LAG, GROUP, 7, 7).name: [7] * len(self.online),
            AlertSeries(roquet.GROUP_IDLE, GROUP, 0, 0).name: [60 * x for x in self.idle_minutes],
            AlertSeries(roquet.GROUP_ONLINE, MEMBERS, 0, 0).name: self.online,
            AlertSeries(roquet.UPTIME, NODE, 0, 0).name: [60 * x for x in self.uptime_minutes],
        }
        series = values.items()
        return {
            "name": self.name,
            "interval": "1m",
            "input_series": [
                {"series": one, "values": " ".join(map(str, by))} for one, by in series
            ],
            "promql_expr_test": list(self._expected()),
        }

    def _expected(self) -> Iterator[Mapping[str, object]]:
        for minute, is_firing in self.firing.items():
            for alert in ("RoquetGroupOffline", "RoquetGroupStalled"):
                expression = (
                    f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)'
                )
                samples = [{"labels": "{}", "value": int(is_firing)}]
                yield {"expr": expression, "eval_time": f"{minute}m", "exp_samples": samples}


def _since(marks: Collection[int], minutes: int) -> list[int]:
    """By minutes: how long ago the last of these minutes was, or the beginning."""
    ages, last = [], 0
    for minute in range(minutes):
        last = minute if minute in marks else last
        ages.append(minute - last)
    return ages


_RUNS: Final = (30, 90, 150)
_DIED: Final = 30
_RESTARTED: Final = DAY_MINUTES + 160
_LENGTH: Final = DAY_MINUTES + 300

HISTORIES: Final = (
    GroupHistory(
        "a group of an archive that runs once an hour, until it stops",
        idle_minutes=_since(_RUNS, _LENGTH),
        online=[0] * _LENGTH,
        uptime_minutes=range(60, 60 + _LENGTH),
        firing={
            **dict.fromkeys(range(45, DAY_MINUTES + 150, 15), False),
            DAY_MINUTES + 180: True,
        },
    ),
    GroupHistory(
        "a group whose members are gone, also after its broker was started again",
        idle_minutes=_since({*range(_DIED), _RESTARTED}, _LENGTH),
        online=[int(minute < _DIED) for minute in range(_LENGTH)],
        uptime_minutes=_since({_RESTARTED}, _LENGTH),
        firing={
            _DIED - 5: False,
            **dict.fromkeys(range(_DIED + 20, _RESTARTED, 10), True),
            _RESTARTED + 60: True,
            _LENGTH - 1: True,
        },
    ),
    GroupHistory(
        "a group that was dead when Prometheus was first pointed at its broker",
        idle_minutes=range(_LENGTH),
        online=[0] * _LENGTH,
        uptime_minutes=range(DAY_MINUTES, DAY_MINUTES + _LENGTH),
        firing=dict.fromkeys(range(60, _LENGTH, 60), True),
    ),
    GroupHistory(
        "a group whose member lived for three minutes only",
        idle_minutes=_since({*range(61, 64)}, _LENGTH),
        online=[int(61 <= minute < 64) for minute in range(_LENGTH)],
        uptime_minutes=range(DAY_MINUTES, DAY_MINUTES + _LENGTH),
        firing=dict.fromkeys(range(90, _LENGTH, 60), True),
    ),
)
"""Groups without members: those of Spark jobs, which are well, and those whose members died."""


def tests(alerts: Sequence[Alert], rules: str) -> str:
    """A file of tests for `promtool test rules`."""
    content = {
        "rule_files": [rules],
        "evaluation_interval": "1m",
        "tests": [
            *(_test(alert, CASES[alert.name]) for alert in alerts),
            *(history.test for history in HISTORIES),
        ],
    }
    return json.dumps(content)


def _test(alert: Alert, case: AlertCase) -> Mapping[str, object]:
    labels = {**case.labels, "severity": alert.severity}
    summary = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels[found[1]], alert.summary)
    annotations = {"summary": summary, "description": alert.action}
    firing = [{"exp_labels": labels, "exp_annotations": annotations}]
    return {
        "name": alert.name,
        "interval": "1m",
        "input_series": [{"series": one.name, "values": one.values} for one in case.series],
        "alert_rule_test": list(_expected(alert.name, firing)),
    }


def _expected(name: str, firing: object) -> Iterator[Mapping[str, object]]:
    for minute, alerts in ((ILL_MINUTE - 1, []), (FIRING_MINUTE, firing), (OVER_MINUTE, [])):
        yield {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": alerts}
