"""Measures of histories that are small enough to compute by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.lab.conftest import SMALL, history

from roquet.lab.measures import HistoryMeasures
from roquet.lab.scenario import LabScenario, ScenarioTimes
from roquet.lab.simulate import simulate_many
from roquet.lab.timeline import DIE, GONE, JOIN, LEAVE, Timeline


def measures_of(scenario: LabScenario, timeline: Timeline, name: str = "AVG") -> dict[str, Any]:
    scenario = replace(scenario, messages=len(timeline.sent))
    return {field: values[0] for field, values in simulate_many(scenario, name, [timeline]).items()}


def test_every_measure_of_a_row_is_worked_out() -> None:
    measures = measures_of(SMALL, history([(0, 0, 1)]))
    assert {"scenario", "history", "strategy", "mode", *measures} == {
        *HistoryMeasures.__struct_fields__
    }


def test_latency_runs_from_the_send_and_percentiles_are_of_messages() -> None:
    sent = [(n * 1_000, 0, 10 + n) for n in range(50)]
    measures = measures_of(SMALL, history(sent))
    assert (measures["p50_ms"], measures["p99_ms"], measures["max_ms"]) == (34, 59, 59)


def test_load_is_uneven_where_one_member_has_all() -> None:
    even = measures_of(SMALL, history([(0, 0, 10), (0, 1, 10)]))
    assert (even["load_max_mean"], even["load_cv"]) == (1, 0)
    uneven = measures_of(SMALL, history([(0, 0, 10), (0, 0, 10)]))
    assert (uneven["load_max_mean"], uneven["load_cv"]) == (2, 1)


def test_load_is_that_of_the_time_for_which_a_member_was_there() -> None:
    # Ten messages in the first half alone, then five each: the newcomer has as much a second.
    sent = [(n * 3_000, 0, 1) for n in range(10)]
    sent += [(30_500 + n * 5_900, n % 2, 1) for n in range(5)]
    timeline = history(sent, [(30_000, [(JOIN, 1)])], members=1, comers=1)
    measures = measures_of(replace(SMALL, members=1), timeline)
    assert measures["load_max_mean"] == pytest.approx((13 / 60) / ((13 / 60 + 2 / 30) / 2))


def test_members_that_idle_while_a_queue_is_long_lose_their_time() -> None:
    # One message waits for 10 s behind another one, while the second member has nothing to do.
    timeline = history([(0, 0, 10_000), (0, 0, 10_000)])
    assert measures_of(SMALL, timeline)["lost_work"] == pytest.approx(10 / 120)
    assert measures_of(SMALL, timeline, "POP")["lost_work"] == 0


def test_messages_of_a_key_out_of_order_are_counted() -> None:
    timeline = history([(0, 0, 500), (1, 0, 10), (2, 0, 10)], keys=[7, 7, 8])
    assert measures_of(SMALL, timeline)["disordered"] == 0
    assert measures_of(SMALL, timeline, "POP")["disordered"] == pytest.approx(1 / 3)


def test_pauses_and_doubles_of_a_death_are_counted() -> None:
    timeline = history(
        [(1_000, 0, 10), (6_000, 0, 10), (7_000, 1, 10), (20_000, 0, 10)],
        [(6_300, [(DIE, 0)]), (9_300, [(GONE, 0)])],
    )
    measures = measures_of(SMALL, timeline)
    assert (measures["paused_s"], measures["pause_max_s"]) == (3, 3)
    assert measures["doubled"] == 0.25
    assert measures["stranded"] == 0


def test_a_burst_is_measured_against_the_mean_rate() -> None:
    # Six messages wait for the end of a pause, and there are twelve a minute: one in five seconds.
    sent = [(5_000 + n, 0, 1) for n in range(6)] + [(40_000 + n, 1, 1) for n in range(6)]
    timeline = history(sent, [(2_000, [(DIE, 0)]), (9_000, [(GONE, 0)])])
    assert measures_of(SMALL, timeline)["burst"] == 6
    assert measures_of(SMALL, history([(0, 0, 1)]))["burst"] is None


def test_messages_of_a_slow_member_are_compared_with_the_others() -> None:
    timeline = history([(0, 0, 10), (0, 1, 10)], slow=[0])
    scenario = replace(SMALL, slow_members=1, slow_factor=4)
    assert measures_of(scenario, timeline)["slow_latency"] == 4
    assert measures_of(SMALL, history([(0, 0, 10)]))["slow_latency"] is None


def test_unhandled_messages_are_stranded() -> None:
    timeline = history([(0, 0, 10), (9_000, 0, 10)], [(5_000, [(LEAVE, 0)])])
    measures = measures_of(SMALL, timeline, "CONFIG")
    assert (measures["stranded"], measures["max_ms"]) == (1, 10)
    assert measures["unowned_share"] == pytest.approx(0.5 * 55 / 60)


def test_where_nothing_is_handled_there_is_no_latency() -> None:
    timeline = history([(9_000, 0, 10)], [(5_000, [(LEAVE, 0)])])
    measures = measures_of(SMALL, timeline, "CONFIG")
    assert (measures["stranded"], measures["p99_ms"]) == (1, 0)


def test_messages_that_return_at_once_are_a_burst_of_popping() -> None:
    sent: Sequence[tuple[int, int, int]] = [(0, 0, 10), (20, 0, 100), (20, 0, 100), (30_000, 0, 1)]
    timeline = history(sent, [(50, [(DIE, 0), (GONE, 0)])])
    scenario = replace(SMALL, times=ScenarioTimes(notice_ms=0, invisible_ms=9_000))
    measures = measures_of(scenario, timeline, "POP")
    assert measures["burst"] is not None
    assert np.isfinite(measures["burst"])
    assert measures["paused_s"] == 0
