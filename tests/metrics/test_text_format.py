import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metrics.prometheus_text import Page, parsed

from roquet.metrics.counts import Histogram
from roquet.metrics.metric import counter, gauge, histogram
from roquet.metrics.text_format import LINES_COUNT, MetricsPage, escape_label, merged, number_text

SENT = counter("roquet_sent_total", 'Sent\\ "messages".\nAll of them.', "topic", "group")
DEPTH = gauge("rocketmq_depth", "Depth.")
TIMES = histogram("roquet_seconds", "Times.", "topic", bounds=(0.5, 1))


def text_of(page: MetricsPage) -> str:
    return b"".join(page.chunks()).decode()


def read(page: MetricsPage) -> Page:
    return parsed(text_of(page))


def test_a_page_has_help_type_and_labels_in_alphabetical_order() -> None:
    page = MetricsPage({"node_id": "a", "cluster": "c"})
    page.add(SENT, 3, "orders", "billing")
    assert text_of(page) == (
        '# HELP roquet_sent_total Sent\\\\ "messages".\\nAll of them.\n'
        "# TYPE roquet_sent_total counter\n"
        'roquet_sent_total{cluster="c",group="billing",node_id="a",topic="orders"} 3.0\n'
    )


def test_a_histogram_counts_upwards_and_ends_with_all_values() -> None:
    times = Histogram(TIMES.bounds)
    for seconds in (0.25, 0.5, 0.75, 8):
        times.observe(seconds)
    page = MetricsPage({})
    page.add_histogram(TIMES, times, "t")
    assert text_of(page).splitlines()[2:] == [
        'roquet_seconds_bucket{topic="t",le="0.5"} 2',
        'roquet_seconds_bucket{topic="t",le="1.0"} 3',
        'roquet_seconds_bucket{topic="t",le="+Inf"} 4',
        'roquet_seconds_count{topic="t"} 4',
        'roquet_seconds_sum{topic="t"} 9.5',
    ]


def test_a_metric_without_labels_has_no_braces() -> None:
    page = MetricsPage({})
    page.add(DEPTH, 1)
    assert text_of(page).endswith("\nrocketmq_depth 1.0\n")


def test_a_label_without_a_value_is_left_out() -> None:
    page = MetricsPage({})
    page.add(SENT, 1, "orders", "")
    assert read(page).labels("roquet_sent_total") == {frozenset({"topic"})}


def test_further_labels_belong_to_metrics_with_apaches_names_alone() -> None:
    page = MetricsPage({"node_id": "a"}, {"otel_scope_name": "broker-meter"})
    page.add(DEPTH, 1)
    page.add(SENT, 1, "t", "g")
    found = read(page)
    assert found.labels("rocketmq_depth") == {frozenset({"node_id", "otel_scope_name"})}
    assert "otel_scope_name" not in next(iter(found.labels("roquet_sent_total")))


@given(st.text(), st.text())
def test_any_name_of_a_stranger_is_one_value_of_one_label(topic: str, node: str) -> None:
    page = MetricsPage({"node_id": node})
    page.add(SENT, 1, topic, "g")
    page.add(DEPTH, 2)
    text = text_of(page)
    assert text.count("\n") == len(text.split("\n")) - 1 == 6
    lines = text.split("\n")
    assert sum(line.startswith("roquet_sent_total{") for line in lines) == 1
    label = escape_label(topic)
    assert not label or f'topic="{label}"' in text
    unescaped = label.replace("\\\\", "\0").replace('\\"', "").replace("\\n", "")
    assert not {'"', "\n", "\\"} & set(unescaped)


def test_a_forged_line_stays_inside_its_label() -> None:
    page = MetricsPage({})
    forged = 'x"} 1\nroquet_broker_is_master 1\n# TYPE y counter\\'
    page.add(SENT, 1, forged, "%s %d")
    (value,) = read(page).values
    assert value.labels == {"topic": forged, "group": "%s %d"}


def test_a_percent_sign_in_a_common_label_is_a_percent_sign() -> None:
    page = MetricsPage({"node_id": "100%s"})
    page.add(SENT, 1, "t", "g")
    assert read(page).values[0].labels["node_id"] == "100%s"


def test_half_of_a_surrogate_pair_becomes_a_question_mark() -> None:
    page = MetricsPage({})
    page.add(SENT, 1, "a\ud800b", "g")
    assert read(page).values[0].labels["topic"] == "a?b"


@pytest.mark.parametrize(
    ("value", "text"),
    [(5, "5.0"), (2.5, "2.5"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN")],
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, text: str) -> None:
    assert number_text(value) == text


def test_a_long_metric_is_written_in_several_pieces() -> None:
    page = MetricsPage({})
    for number in range(LINES_COUNT + 1):
        page.add(SENT, number, str(number), "g")
    pieces = list(page.chunks())
    assert len(pieces) == 3
    assert pieces[1].count(b"\n") == LINES_COUNT


def test_metrics_are_in_the_order_of_their_names_whatever_came_first() -> None:
    page = MetricsPage({})
    page.add(SENT, 1, "t", "g")
    page.add(DEPTH, 1)
    page.add(SENT, 1, "t", "h")
    assert list(read(page).types) == ["rocketmq_depth", "roquet_sent_total"]


@pytest.mark.parametrize("end", ["\r", "\v", "\x1c", "\x85", "\u2028", "\0"])
def test_no_character_of_a_label_ends_a_line(end: str) -> None:
    assert escape_label(f"g{end}roquet_store_refuses_messages 0") == (
        "g?roquet_store_refuses_messages 0"
    )


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
