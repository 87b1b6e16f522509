"""The summary: means with intervals, the best strategies and their equivalents."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from roquet.lab import spark_job
from roquet.lab.scenario import PRESETS
from roquet.lab.study import Study, StudyDirectory
from roquet.lab.summary import GOALS, StudySummary, is_equivalent, statistics_of, summarize

STUDY = Study(
    scenarios=(replace(PRESETS["churn"], messages=60), replace(PRESETS["steady"], messages=60)),
    strategies=("AVG", "CONSISTENT_HASH", "STICKY", "CONFIG", "POP"),
    histories=30,
    seed=4,
)


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> StudySummary:
    place = StudyDirectory(tmp_path_factory.mktemp("lab"))
    directory = place.part(0)
    directory.mkdir(parents=True)
    for number in range(2):
        numbers = list(range(number * 15, number * 15 + 15))
        table = pa.Table.from_batches([spark_job.rows(STUDY, numbers)])
        pq.write_table(table, directory / f"{number:02d}.parquet")
    return summarize(STUDY, place)


def test_a_figure_has_a_mean_its_interval_and_where_most_lie() -> None:
    values = np.arange(101, dtype=float)
    statistics = statistics_of(values)
    assert statistics is not None
    assert (
        statistics.mean,
        statistics.low,
        statistics.median,
        statistics.high,
        statistics.most,
    ) == (50, 5, 50, 95, 100)
    assert statistics.margin == pytest.approx(1.96 * values.std(ddof=1) / 101**0.5, rel=1e-3)


def test_a_figure_leaves_out_what_does_not_apply() -> None:
    statistics = statistics_of(np.array([1.0, np.nan, 3.0]))
    assert statistics is not None
    assert (statistics.count, statistics.mean) == (2, 2)
    assert statistics_of(np.array([np.nan])) is None
    one = statistics_of(np.array([7.0]))
    assert one is not None
    assert one.margin == 0


def test_the_interval_holds_the_truth_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(400):
        statistics = statistics_of(rng.normal(3, 1, 50))
        assert statistics is not None
        held += abs(statistics.mean - 3) <= statistics.margin
    assert 0.90 < held / 400 < 0.98


def test_strategies_are_compared_history_by_history() -> None:
    rng = np.random.default_rng(2)
    histories = rng.normal(100, 30, 400)
    best = histories + rng.normal(0, 1, 400)
    assert is_equivalent(best, best)
    assert is_equivalent(best + rng.normal(0, 1, 400), best)
    # Far less than the histories differ among themselves, and yet told apart.
    assert not is_equivalent(best + 1 + rng.normal(0, 1, 400), best)


def test_a_scenario_has_the_figures_of_its_strategies(summary: StudySummary) -> None:
    assert [part.name for part in summary.parts] == ["churn", "steady"]
    assert summary.rows == 30 * 2 * 5
    churn = summary.parts[0].figures
    assert list(churn) == list(STUDY.strategies)
    assert churn["STICKY"]["moved"].mean == churn["STICKY"]["moved_least"].mean
    assert churn["AVG"]["moved"].mean > churn["STICKY"]["moved"].mean
    assert "queues_cv" not in churn["POP"]


def test_the_best_leaves_nothing_unhandled_and_avg_is_taken_of_equals(
    summary: StudySummary,
) -> None:
    chosen = {choice.measure: choice for choice in summary.parts[0].choices}
    assert set(chosen) == {goal.measure for goal in GOALS}
    assert "AVG" not in chosen["moved"].best
    assert chosen["load_max_mean"].best[0] == "AVG"
    for choice in chosen.values():
        assert choice.of == 3
        assert not {"CONFIG", "POP"} & {*choice.best}


def test_the_next_best_strategy_has_its_paired_difference(summary: StudySummary) -> None:
    churn = summary.parts[0]
    choice = next(choice for choice in churn.choices if choice.measure == "moved")
    apart, best = choice.next, churn.figures[choice.best[0]]["moved"]
    assert apart is not None
    worse = churn.figures[apart.strategy]["moved"]
    assert apart.strategy not in choice.best
    assert apart.mean == pytest.approx(worse.mean - best.mean)
    # Both played the same histories: the difference is surer than either mean.
    assert 0 < apart.margin < worse.margin + best.margin
    assert apart.mean > apart.margin
    for choice in churn.choices:
        assert (choice.next is None) == (len(choice.best) == choice.of)


def test_the_claims_are_part_of_it(summary: StudySummary) -> None:
    assert len(summary.claims) >= 6
    assert all(claim.holds for claim in summary.claims)
