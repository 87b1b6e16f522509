"""A cluster for the subscribers and publishers of this folder."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from roquet.client import ConsumeFrom, ConsumerConfig
from roquet.integrations.faststream import RocketBroker
from roquet.testing.cluster import BlockingCluster

MakeBroker = Callable[..., RocketBroker]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with BlockingCluster() as cluster:
        yield cluster.namesrv_addr


@pytest.fixture
def make_broker(address: str) -> MakeBroker:
    """Brokers that find new topics at once and log nothing."""
    quick = ConsumerConfig(
        consume_from=ConsumeFrom.FIRST, route_period_ms=50, rebalance_period_ms=100
    )

    def make(**options: Any) -> RocketBroker:
        return RocketBroker(address, consumer=quick, logger=None, **options)

    return make
