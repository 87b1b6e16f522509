import metrics_table
from roquet.metrics.rocketmq_metrics import LEFT_OUT, ROCKETMQ_METRICS
from roquet.metrics.roquet_metrics import ROQUET_METRICS


def test_the_written_page_equals_the_generated_one() -> None:
    written = metrics_table.DOCUMENT.read_text("utf-8")
    assert written == metrics_table.drawn(), "`make map` writes it anew"


def test_every_metric_has_a_row() -> None:
    page = metrics_table.drawn()
    names = [metric.name for metric in (*ROCKETMQ_METRICS, *ROQUET_METRICS)]
    assert [name for name in (*names, *LEFT_OUT) if f"\n| `{name}` |" not in page] == []
