from collections.abc import Sequence

from roquet.dashboard.facts.jobs import read_jobs
from roquet.dashboard.job_notes import JobRow
from roquet.model.errors import ConfigError


def row(table: str, alert: str = "") -> JobRow:
    return JobRow(
        table=table,
        job="archive",
        topic="orders",
        commits=3,
        committed_ms=1,
        looked_ms=2,
        lag=4,
        lag_s=5.0,
        state="caught up",
        alert=alert,
    )


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
