"""Figures of the benchmark of replication."""

from typing import Any

import pytest
from bench.lib.rows import at_most
from bench.lib.sides import Load as ClientLoad

from bench import replication


def caught(*looks: tuple[float, int, float, float]) -> Any:
    return replication.Caught(*(replication.Moment(*look) for look in looks))


def test_a_stream_is_measured_from_the_first_look_at_which_something_was_there() -> None:
    looks = (10.0, 50_000_000, 1.0, 2.0), (12.0, 250_000_000, 1.4, 9.9), (14.0, 250_000_000, 9, 3.0)
    found = caught(*looks)
    assert (found.log_rate, found.queue_rate) == (100.0, 50.0)
    assert (found.master_cpu, found.replica_cpu) == (pytest.approx(2.0), pytest.approx(5.0))


def test_a_stream_that_was_over_at_the_first_look_took_no_longer_than_between_two_looks() -> None:
    look = 10.0, 1_000_000, 1.0, 2.0
    found = caught(look, look, look)
    assert found.log_rate == pytest.approx(1 / replication.LOOK_S)


def test_goals_of_threads_are_those_of_64_that_share_a_connection() -> None:
    load = ClientLoad
    found = {
        count: {
            "ours": [load(rate, 3.0, cpu) for rate, cpu in ((900.0, 9.0), (1_300.0, 7.0))],
            "genuine": [load(1_000.0, 4.0, 10.0)] * 2,
        }
        for count in (64, 1)
    }
    found[64]["ours"] += [load(1_200.0, 3.0, 5.0)]
    found[64]["genuine"] += [load(1_000.0, 4.0, 10.0)]
    rate, worst, cpu, *rest = replication.thread_rows(found)
    assert (rate.ours, rate.theirs, rate.goal, rate.verdict) == (1_200, 1_000, ">= 1.3 x", "NO")
    assert (worst.ours, worst.unit, worst.goal) == (0.9, "x", ">= 1.3")
    assert (cpu.ours, cpu.theirs, cpu.goal, cpu.verdict) == (7, 10, "<= 0.6 x", "NO")
    assert [line.work for line in rest] == [
        "2 in sync, Producer, 1 thread: master's CPU a message",
        "2 in sync, Producer, 1 thread: average round trip",
    ]


def test_a_limit_is_a_goal_of_ours_whatever_the_other_side_needs() -> None:
    for seconds, verdict in ((3.0, "yes"), (5.0, "NO")):
        rounds = {"ours": [0.0, seconds, 9.0], "genuine": [2.0]}
        line = at_most(replication.medians("frozen", rounds), "4")
        assert (line.ours, line.theirs, line.goal, line.verdict) == (seconds, 2.0, "<= 4", verdict)
