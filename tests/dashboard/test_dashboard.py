from tests.dashboard.conftest import OpenSite

from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_a_dashboard_samples_by_itself(open_site: OpenSite) -> None:
    async with open_site() as it:
        dashboard = it.browser.dashboard
        sample = await dashboard.sampler.wait(5_000)
        assert sample is not None
        assert [one.broker for one in sample.brokers] == ["broker-a", "broker-b"]
        assert dashboard.client.clock is dashboard.clock
