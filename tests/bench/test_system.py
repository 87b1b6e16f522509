"""Figures that benchmarks share."""

import json
from pathlib import Path

from bench.lib import measures, rows, sides

from bench import system


def test_a_percentile_is_one_of_the_values() -> None:
    hundred = list(range(100))
    found = [measures.percentile(hundred, percent) for percent in (0, 50, 99, 100)]
    assert found == [0, 50, 99, 99]
    assert measures.percentile([7.5], 50) == 7.5


def test_a_round_counts_by_the_median_of_each_figure() -> None:
    rounds = [
        sides.Load(rate=rate, round_trip_ms=trip, broker_cpu_us=cpu)
        for rate, trip, cpu in ((1.0, 9.0, 5.0), (3.0, 8.0, 4.0), (2.0, None, 6.0))
    ]
    found = system.middle(rounds)
    assert (found.rate, found.round_trip_ms, found.broker_cpu_us) == (2.0, 8.5, 5.0)


def test_rows_are_saved_with_their_cause_and_the_point_of_their_plot(tmp_path: Path) -> None:
    plain = rows.reach("send", "msg/s", 5.0, 6)
    point = rows.Row("2 brokers", "msg/s", 5.0, 4.0, series="brokers: p99, ms", x=2)
    point.cause = "one disk"
    rows.save([plain, point], tmp_path / "rows.json")
    first, second = json.loads((tmp_path / "rows.json").read_text())
    assert (first["goal"], first["holds"], "series" in first) == (">= 6", "NO", False)
    assert (second["holds"], second["cause"], second["series"], second["x"]) == (
        "", "one disk", "brokers: p99, ms", 2,
    )  # fmt: skip
