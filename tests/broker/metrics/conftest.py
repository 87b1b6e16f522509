from collections.abc import Awaitable, Callable

import pytest
from tests.metrics.prometheus_text import Page, parsed

from roquet.broker.broker import Broker
from roquet.metrics.text_format import MetricsPage

Source = Callable[[Broker, MetricsPage], Awaitable[None] | None]
Collect = Callable[[Source], Awaitable[Page]]
"""Makes a page of one source."""


@pytest.fixture
def collect(broker: Broker) -> Collect:
    async def collected(source: Source) -> Page:
        page = MetricsPage({})
        if (work := source(broker, page)) is not None:
            await work
        return parsed(b"".join(page.chunks()).decode())

    return collected


@pytest.fixture
def measured(broker: Broker) -> Broker:
    """The broker, which counts stored messages."""
    broker.log.counts.counts_stored = True
    return broker
