import asyncio
from collections.abc import Sequence

import pytest

from roquet.dashboard.sampling.history import HISTORY_MS
from roquet.dashboard.sampling.jobs import PERIOD_MS, JobHistory, JobRow, JobSampler, read_jobs
from roquet.model.errors import ConfigError
from roquet.testing.clock import this_loop

pytestmark = pytest.mark.virtual_time


def row(table: str, alert: str = "") -> JobRow:
    return JobRow(
        table=table, job="archive", topic="orders", commits=3, committed_ms=1, looked_ms=2, lag=4,
        lag_s=5.0, state="caught up", alert=alert,
    )  # fmt: skip


async def test_tables_with_an_alert_come_first() -> None:
    rows = {"a": row("a"), "b": row("b", alert="retention will overtake it")}
    facts = await read_jobs(lambda table: [rows[table]], ["a", "b"])
    assert [job.table for job in facts.jobs] == ["b", "a"]
    assert facts.problems == []


async def test_a_table_that_cannot_be_read_is_named_with_the_reason() -> None:
    def source(table: str) -> Sequence[JobRow]:
        if table == "gone":
            raise ConfigError("has no status")
        if table == "s3://far":
            raise ImportError("No module named 'deltalake'")
        return [row(table)]

    facts = await read_jobs(source, ["gone", "s3://far", "a"])
    assert [job.table for job in facts.jobs] == ["a"]
    assert facts.problems == ["gone: has no status", "s3://far: No module named 'deltalake'"]


async def test_the_lag_of_each_job_is_remembered_until_its_table_is_gone() -> None:
    tables = ["a", "b"]
    sampler = JobSampler(lambda table: [row(table)], tables, this_loop().clock)
    assert sampler.latest is None
    await sampler.step()
    await asyncio.sleep(30)
    tables.remove("b")
    facts = await sampler.step()
    assert sampler.latest is facts
    assert list(sampler.history(row("a")).lags) == [4, 4]
    assert list(sampler.history(row("b")).lags) == []


async def test_notes_that_cannot_be_read_end_nothing() -> None:
    asked: list[str] = []

    def source(table: str) -> Sequence[JobRow]:
        asked.append(table)
        if len(asked) == 1:
            raise ZeroDivisionError
        return [row(table)]

    sampler = JobSampler(source, ["a"], this_loop().clock)
    task = asyncio.create_task(sampler.run())
    await asyncio.sleep(PERIOD_MS / 1000 + 1)
    assert sampler.latest is not None
    task.cancel()
    await asyncio.wait([task])


def test_a_job_keeps_an_hour_and_begins_anew_when_the_clock_is_set_back() -> None:
    history = JobHistory()
    for now_ms in range(0, HISTORY_MS + 90_000, 30_000):
        history.add(now_ms, 7)
    assert history.times[-1] - history.times[0] == HISTORY_MS
    history.add(5, 8)
    assert (list(history.times), list(history.lags)) == ([5], [8])
