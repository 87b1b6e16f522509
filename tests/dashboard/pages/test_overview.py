import msgspec
from tests.dashboard.conftest import OpenSite, browse

from roquet.admin import topics
from roquet.admin.topics import TopicSettings
from roquet.dashboard.sampling.sampler import Sampler
from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_the_overview_says_that_there_are_no_problems(open_site: OpenSite) -> None:
    async with open_site() as it:
        await topics.create(it.admin, "orders", TopicSettings())
        for _ in range(2):
            await it.browser.dashboard.sampler.step()
        facts = await it.browser.facts("/")
        assert (facts["brokers"], facts["topics"], facts["problems"]) == (2, 1, [])
        html = await it.browser.text("/")
        assert "There are no problems" in html
        assert 'aria-label="lag of all groups"' in html


@in_virtual_time
async def test_a_cluster_that_is_away_is_a_problem(open_site: OpenSite) -> None:
    async with open_site() as it:
        for number in range(2):
            await it.running.stop_broker(number)
        await it.browser.dashboard.sampler.step()
        facts = await it.browser.facts("/")
        assert "the newest sample is not whole" in facts["problems"][0]["text"]


@in_virtual_time
async def test_before_the_first_sample_the_overview_says_so(open_site: OpenSite) -> None:
    async with open_site() as it:
        idle = msgspec.structs.replace(
            it.browser.dashboard, sampler=Sampler(it.admin, period_ms=10_000)
        )
        async with browse(idle) as browser:
            assert "sampled for the first time" in await browser.text("/")
