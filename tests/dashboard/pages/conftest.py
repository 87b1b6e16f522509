from collections.abc import AsyncIterator

import pytest
from tests.dashboard.conftest import Site
from tests.dashboard.pages.orders_topic import orders


@pytest.fixture
async def orders_site() -> AsyncIterator[Site]:
    """A site with the topic of orders, and no rule that hides bodies."""
    async with orders() as site:
        yield site
