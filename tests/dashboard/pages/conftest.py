from collections.abc import AsyncIterator

import pytest
from tests.dashboard.conftest import OpenSite, Site
from tests.dashboard.pages.orders_topic import orders


@pytest.fixture
async def orders_site(open_site: OpenSite) -> AsyncIterator[Site]:
    """A site with the topic of orders, and no rule that hides bodies."""
    async with orders(open_site) as site:
        yield site
