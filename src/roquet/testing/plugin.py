"""Pytest fixtures: `roquet_cluster`, available as soon as Roquet is installed.

    def test_an_order_is_billed(roquet_cluster):
        with Producer(roquet_cluster.namesrv_addr) as producer: ...

Brokers are imported when a test first uses a fixture: a project that uses none pays for no import
but this one.
"""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.testing.cluster import BlockingCluster


@pytest.fixture
def roquet_cluster() -> "Iterator[BlockingCluster]":
    """A name server and a broker in memory, on free ports of this machine, new for each test.

    It runs on a thread of its own, so tests may be plain or async. Clients use its `namesrv_addr`.
    """
    from roquet.testing.cluster import BlockingCluster

    with BlockingCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def roquet_session_cluster() -> "Iterator[BlockingCluster]":
    """A cluster as `roquet_cluster`, for a whole session: quicker, but tests share its topics."""
    from roquet.testing.cluster import BlockingCluster

    with BlockingCluster() as cluster:
        yield cluster
