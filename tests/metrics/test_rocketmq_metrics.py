"""The metrics beside the page of Apache RocketMQ 5.5.0's broker: names, types, labels, buckets."""

from pathlib import Path

import pytest
from tests.for_each import for_each
from tests.metrics.prometheus_text import parsed

from roquet.metrics.metric import Metric, MetricType
from roquet.metrics.rocketmq_metrics import LEFT_OUT, ROCKETMQ_METRICS
from roquet.metrics.text_format import number_text

VECTOR = Path(__file__).parents[1] / "vectors" / "metrics" / "broker-5.5.0.prom"

GENUINE = parsed(VECTOR.read_text("utf-8"))

COMMON = {"cluster", "node_id", "node_type", "otel_scope_name"}

OURS = {metric.name: metric for metric in ROCKETMQ_METRICS}

ABSENT = {"rocketmq_pop_revive_retry_messages_total", "rocketmq_proxy_up"}
"""A counter without an event when the page was taken, and a metric of proxies."""

OPTIONAL = {"is_retry"}
"""Labels that some series of Apache's page lack."""


def test_every_genuine_metric_is_shown_or_has_a_reason() -> None:
    assert GENUINE.types.keys() - OURS.keys() - LEFT_OUT.keys() == set()
    assert OURS.keys() - GENUINE.types.keys() == ABSENT
    assert OURS.keys() & LEFT_OUT.keys() == set()


@for_each([m for m in ROCKETMQ_METRICS if m.name not in ABSENT])
def test_types_and_labels_are_the_genuine_ones(metric: Metric) -> None:
    assert metric.type == GENUINE.types[metric.name]
    for labels in GENUINE.labels(metric.name):
        assert labels - COMMON - OPTIONAL == set(metric.labels) - OPTIONAL


@pytest.mark.parametrize("metric", [m for m in ROCKETMQ_METRICS if m.type is MetricType.HISTOGRAM])
def test_buckets_are_the_genuine_ones(metric: Metric) -> None:
    name = f"{metric.name}_bucket"
    bounds = {value.labels["le"] for value in GENUINE.values if value.name == name}
    assert {float(bound) for bound in bounds} == {*metric.bounds, float("inf")}
    assert {number_text(bound) for bound in metric.bounds} | {"+Inf"} == bounds


def test_what_a_genuine_name_hides_is_in_its_help_text() -> None:
    assert OURS["rocketmq_timer_dequeue_lag"].help.startswith("ALL")
    assert OURS["rocketmq_finish_message_latency_milliseconds"].help.startswith("SECONDS")
    assert OURS["rocketmq_pop_revive_lag_milliseconds"].help.startswith("A COUNT")
