import re

from roquet.metrics.metric import MetricType
from roquet.metrics.rocketmq_metrics import ROCKETMQ_METRICS
from roquet.metrics.roquet_metrics import ROQUET_METRICS


def test_own_metrics_have_own_names_that_say_their_unit() -> None:
    for metric in ROQUET_METRICS:
        assert re.fullmatch(r"roquet_[a-z_]+", metric.name)
        assert (metric.type is MetricType.COUNTER) == metric.name.endswith("_total")
        assert "milliseconds" not in metric.name, "Prometheus' base unit is the second"


def test_a_name_is_defined_once_and_described_in_a_sentence() -> None:
    metrics = [*ROCKETMQ_METRICS, *ROQUET_METRICS]
    assert len({metric.name for metric in metrics}) == len(metrics)
    assert [m.name for m in metrics if not m.help.endswith(".") or "\n" in m.help] == []
