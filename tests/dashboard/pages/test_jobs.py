from msgspec.structs import replace
from tests.dashboard.conftest import OpenSite, browse
from tests.dashboard.facts.test_jobs import row
from tests.dashboard.pages.orders_topic import HOSTILE, MARKS

from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_without_tables_the_page_says_how_to_name_one(open_site: OpenSite) -> None:
    async with open_site() as it:
        assert "--table URL" in await it.browser.text("/jobs")


@in_virtual_time
async def test_tables_need_the_package_that_reads_them(open_site: OpenSite) -> None:
    async with open_site({"tables": ("lake/orders",)}) as it:
        assert "roquet[arrow]" in await it.browser.text("/jobs")


@in_virtual_time
async def test_a_table_is_shown_with_its_lag_and_alert(open_site: OpenSite) -> None:
    async with open_site({"tables": (HOSTILE, "gone")}) as it:

        def source(table: str) -> list[object]:
            if table == "gone":
                raise OSError("no such directory")
            return [row(table, alert=f"run the job: {HOSTILE}")]

        dashboard = replace(it.browser.dashboard, job_source=source)
        async with browse(dashboard) as browser:
            html = await browser.text("/jobs")
            assert "run the job" in html
            assert "gone: no such directory" in html
            assert not any(mark in html for mark in MARKS)
            facts = await browser.facts("/jobs")
            assert facts["facts"]["jobs"][0]["lag"] == 4
