"""The generated files, as far as they can be checked without Prometheus and Grafana."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.for_each import for_each
from tests.tools import alert_cases

import monitoring_files
from roquet.metrics import roquet_metrics
from roquet.metrics.metric import Metric, MetricType
from roquet.metrics.rocketmq_metrics import ROCKETMQ_METRICS
from roquet.metrics.roquet_metrics import ROQUET_METRICS

TABLE = {metric.name: metric for metric in (*ROCKETMQ_METRICS, *ROQUET_METRICS)}

COMMON = {"cluster", "node_id", "node_type", "process", "le", "instance", "job"}
"""Labels that a server, `roquet serve` or Prometheus adds to every series."""

EXPRESSIONS = [alert.expression for alert in monitoring_files.ALERT_RULES] + [
    expression
    for row in monitoring_files.BOARD_ROWS.values()
    for panel in row
    for expression in panel.expressions.values()
]


def metrics_of(expression: str) -> list[Metric]:
    """The metrics that an expression names. KeyError for one that does not exist."""
    found = []
    for name in re.findall(r"\b(?:roquet|rocketmq)_[a-z_]+", expression):
        if name not in TABLE:
            base = re.sub(r"_(bucket|count|sum)$", "", name)
            assert TABLE[base].type is MetricType.HISTOGRAM
            name = base
        found.append(TABLE[name])
    return found


@pytest.mark.parametrize("path", monitoring_files.files(), ids=lambda path: path.name)
def test_the_written_files_equal_the_generated_ones(path: Path) -> None:
    text = monitoring_files.files()[path]
    assert path.read_text("utf-8") == text, "`make map` writes it anew"


@for_each(EXPRESSIONS)
def test_expressions_name_metrics_and_labels_that_exist(expression: str) -> None:
    metrics = metrics_of(expression)
    assert metrics
    known = COMMON.union(*(metric.labels for metric in metrics))
    lists = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
    by = {label.strip() for labels in lists for label in labels.split(",")}
    matched = set(re.findall(r"(\w+)=~?\"", expression))
    assert (by | matched) - known == set()
    assert expression.count("(") == expression.count(")")
    assert expression.count("{") == expression.count("}")


@for_each(EXPRESSIONS)
def test_counters_and_histograms_are_used_by_their_rate_and_gauges_as_they_are(
    expression: str,
) -> None:
    for metric in metrics_of(expression):
        rated = re.search(rf"\b(?:rate|increase)\({metric.name}", expression) is not None
        assert rated == (metric.type is not MetricType.GAUGE), metric.name


@pytest.mark.parametrize("alert", monitoring_files.ALERT_RULES, ids=lambda alert: alert.name)
def test_an_alert_says_whom_it_is_about_and_what_helps(alert: monitoring_files.Alert) -> None:
    known = COMMON.union(*(metric.labels for metric in metrics_of(alert.expression)))
    assert set(re.findall(r"\$labels\.(\w+)", alert.summary)) <= known
    assert alert.action.endswith(".")
    assert alert.severity in {"critical", "warning"}
    assert re.fullmatch(r"\d+m", alert.wait)


def test_names_of_alerts_differ() -> None:
    names = [alert.name for alert in monitoring_files.ALERT_RULES]
    assert len(set(names)) == len(names)


def test_legends_name_labels_that_the_expression_keeps() -> None:
    for row in monitoring_files.BOARD_ROWS.values():
        for panel in row:
            for legend, expression in panel.expressions.items():
                named = set(re.findall(r"{{(\w+)}}", legend))
                kept = re.search(r"sum by \(([^)]*)\)", expression)
                if kept is not None:
                    assert named <= {label.strip() for label in kept[1].split(",")}
                else:
                    assert named <= COMMON.union(*(m.labels for m in metrics_of(expression)))


def test_panels_of_the_board_do_not_overlap() -> None:
    board: dict[str, Any] = json.loads(monitoring_files.board())
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def promtool(*arguments: str | Path) -> None:
    """Run promtool; skips the test where it is not installed, and fails it with its output."""
    if (program := shutil.which("promtool")) is None:
        pytest.skip("no promtool on PATH: tools/install/servers.sh installs it")
    done = subprocess.run([program, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_rules() -> None:
    promtool("check", "rules", monitoring_files.ALERTS)


def test_every_alert_has_a_case() -> None:
    assert set(alert_cases.CASES) == {alert.name for alert in monitoring_files.ALERT_RULES}


@pytest.mark.slow
def test_each_alert_fires_while_something_is_wrong_and_clears_after_that(tmp_path: Path) -> None:
    tests = tmp_path / "tests.yml"
    tests.write_text(
        alert_cases.tests(monitoring_files.ALERT_RULES, str(monitoring_files.ALERTS)), "utf-8"
    )
    promtool("test", "rules", tests)


@pytest.mark.parametrize(
    "name", ["RoquetDeadLetters", "RoquetSetAside", "RoquetRetentionTookUnread"]
)
def test_the_first_count_of_a_new_series_is_an_alert_and_a_new_page_is_none(
    tmp_path: Path, name: str
) -> None:
    (series,) = alert_cases.CASES[name].series
    page = alert_cases.AlertSeries(roquet_metrics.BUILD_INFO, {}, 1, 1).name

    def history(values: str, page_values: str, firing: dict[int, int]) -> dict[str, object]:
        expression = f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) or vector(0)'
        return {
            "interval": "1m",
            "input_series": [
                {"series": series.name, "values": values}, {"series": page, "values": page_values},
            ],
            "promql_expr_test": [
                {"expr": expression, "eval_time": f"{minute}m",
                 "exp_samples": [{"labels": "{}", "value": value}]}
                for minute, value in firing.items()
            ],
        }  # fmt: skip

    content = {
        "rule_files": [str(monitoring_files.ALERTS)],
        "tests": [
            history("_x19 4380x40", "1x60", {15: 0, 22: 1, 28: 1, 40: 0}),
            history("4380x60", "1x60", {0: 0, 5: 0, 20: 0}),
        ],
    }
    tests = tmp_path / "tests.yml"
    tests.write_text(json.dumps(content), "utf-8")
    promtool("test", "rules", tests)
