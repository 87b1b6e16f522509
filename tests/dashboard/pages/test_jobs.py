import pytest
from msgspec.structs import replace
from tests.dashboard.conftest import browse, open_site
from tests.dashboard.pages.orders_topic import HOSTILE, MARKS

from roquet.dashboard.sampling.jobs import JobRow, JobSampler

pytestmark = pytest.mark.virtual_time


async def test_without_tables_the_page_says_how_to_name_one() -> None:
    async with open_site() as it:
        assert "--table URL" in await it.browser.text("/jobs")


async def test_tables_need_the_package_that_reads_them() -> None:
    async with open_site({"tables": ("lake/orders",)}) as it:
        assert "roquet[arrow]" in await it.browser.text("/jobs")


async def test_a_table_is_shown_with_its_lag_and_alert() -> None:
    async with open_site({"tables": (HOSTILE, "gone", "lake/new")}) as it:

        def source(table: str) -> list[object]:
            if table == "gone":
                raise OSError("no such directory")
            if table == "lake/new":
                return []
            return [row(table, alert=f"run the job: {HOSTILE}")]

        dashboard = replace(it.browser.dashboard, job_source=source)
        async with browse(dashboard) as browser:
            html = await browser.text("/jobs")
            assert "run the job" in html
            assert "gone: no such directory" in html
            assert "no job has filled it yet" in html
            assert not any(mark in html for mark in MARKS)
            facts = await browser.facts("/jobs")
            assert facts["facts"]["jobs"][0]["lag"] == 4
            assert facts["facts"]["unfilled"] == ["lake/new"]


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


async def test_the_lag_of_a_job_is_drawn_over_time() -> None:
    async with open_site({"tables": ("lake/orders",)}) as it:
        sampler = JobSampler(lambda table: [row(table)], ["lake/orders"], it.clock)
        dashboard = replace(it.browser.dashboard, jobs=sampler, job_source=lambda _: 1 // 0)
        for _ in range(2):
            await sampler.step()
            await it.clock.sleep(30_000)
        async with browse(dashboard) as browser:
            html = await browser.text("/jobs")
        assert "orders to lake/orders: lag" in html
        assert 'data-points="[[0.0,4],[30.0,4]]"' in html
