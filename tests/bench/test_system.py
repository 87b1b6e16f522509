"""Figures that benchmarks share."""

import json
from pathlib import Path

import pytest
from bench.lib import measures, rows, sides
from bench.lib.calibration import Calibration

from bench import system


def test_a_percentile_is_one_of_the_values() -> None:
    hundred = list(range(100))
    found = [measures.percentile(hundred, percent) for percent in (0, 50, 99, 100)]
    assert found == [0, 50, 99, 99]
    assert measures.percentile([7.5], 50) == 7.5


def load(rate: float, trip: float | None, cpu: float, client: float = 0) -> sides.Load:
    return sides.Load(rate, trip, cpu, Calibration(100, 101), client)


def test_a_line_has_the_medians_of_each_side_and_how_fast_the_machine_was() -> None:
    ours = [load(1.0, 9.0, 5.0), load(3.0, 8.0, 4.0), load(2.0, 7.0, 6.0)]
    rounds = {"ours": ours, "genuine": [sides.Load(4.0, None, 8.0, Calibration(100, 150))]}
    line = rows.compared("send", "msg/s", rounds, lambda one: one.rate)
    assert (line.ours, line.theirs, line.calibration) == (
        2.0,
        4.0,
        "100-150 ms, moved 50%, 1 unsteady",
    )
    alone = rows.compared("send", "us", {"ours": ours}, lambda one: one.broker_cpu_us)
    assert (alone.ours, alone.theirs, alone.calibration) == (5.0, None, "100-101 ms")


def test_a_goal_of_each_round_is_that_of_the_worst_one() -> None:
    rounds = {
        "ours": [load(30.0, 1.0, 2.0), load(10.0, 1.0, 3.0), load(40.0, 1.0, 2.0)],
        "genuine": [load(10.0, 2.0, 10.0), load(10.0, 2.0, 10.0), load(10.0, 2.0, 10.0)],
    }
    table = {row.work: row for row in system.rows({"send64": rounds, "batch": rounds})}
    batch = table["BatchProducer 10 x 32: throughput, worst round"]
    assert (batch.ours, batch.theirs, batch.goal, batch.verdict) == (1.0, None, ">= 1.3", "NO")
    send = table["Producer, 64 threads: broker CPU a message, worst round"]
    assert (send.ours, send.goal, send.verdict) == (0.3, "<= 0.25", "NO")
    assert table["BatchProducer 10 x 32: throughput"].verdict == "yes"


def test_a_drain_that_the_client_limits_says_how_fast_it_could_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    rounds = {"ours": [load(9.0, None, 2.0, 4.0)], "genuine": [load(5.0, None, 6.0, 8.0)]}
    rate, cpu = system.rows({"drain": rounds})
    assert (rate.verdict, cpu.verdict, cpu.cause) == ("NO", "yes", "")
    assert rate.cause == "the client itself takes 4.0 us a message: at most 500,000 msg/s here"
    assert system.client_limit([load(9.0, None, 2.0)]) == "", "it was not measured"


def test_without_the_other_side_there_is_no_worst_round() -> None:
    rounds = {"ours": [load(30.0, 1.0, 2.0)]}
    assert [row.verdict for row in system.rows({"batch": rounds})] == ["no peer", "no peer"]


def test_a_work_as_a_whole_gives_its_calibration_to_rows_without_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        rows, "steadily", lambda measure, repeats_max: (measure(), Calibration(9, 9, repeats_max))
    )
    own = rows.Row("b", "s", 1.0, calibration="own")
    found = rows.calibrated(lambda: [rows.Row("a", "s", 1.0), own], 1)
    assert [row.calibration for row in found] == ["9-9 ms, 1 repeated", "own"]


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
