from tests.metrics.prometheus_text import parsed

from roquet.metrics.merged_pages import merged

MASTER = """\
# HELP x_total Help.
# TYPE x_total counter
x_total{topic="t{}"} 1.0
# HELP y Help.
# TYPE y gauge
y 2.0
"""
REPLICA = MASTER.replace("1.0", "7.0")


def test_values_of_several_processes_differ_by_one_label() -> None:
    page = parsed("".join(merged({"broker-a": MASTER, "broker-a-1": REPLICA})))
    assert page.one("x_total", process="broker-a", topic="t{}") == 1
    assert page.one("x_total", process="broker-a-1") == 7
    assert page.one("y", process="broker-a") == 2
    assert page.types == {"x_total": "counter", "y": "gauge"}


def test_buckets_stay_with_their_histogram() -> None:
    page = "# HELP h H.\n# TYPE h histogram\n" + 'h_bucket{le="+Inf"} 1\nh_count 1\nh_sum 2.0\n'
    assert parsed("".join(merged({"a": page, "b": page}))).of("h_sum") == [2, 2]


def test_a_page_that_is_cut_or_no_page_at_all_harms_no_other() -> None:
    text = "".join(merged({"a": MASTER, "b": "# EOF\n\n# HELP", 'c"': "y 3.0\n"}))
    page = parsed(text)
    assert page.one("y", process="a") == 2
    assert page.of("x_total") == [1]
