"""Pytest fixtures: `roquet_cluster`, available as soon as Roquet is installed.

    async def test_an_order_is_billed(roquet_cluster):
        async with Producer(roquet_cluster.namesrv_addr) as producer: ...

Async tests that use one run without a plugin for asyncio, each in an event loop of its own; where
pytest-asyncio or anyio takes the test, that is left to it. Brokers are imported when a test first
uses a fixture: a project that uses none pays for no import but this one.
"""

import inspect
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.testing.cluster import BlockingCluster

FIXTURES: Final = frozenset({"roquet_cluster", "roquet_session_cluster"})


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test that uses a fixture of ours and that no other plugin runs."""
    test = pyfuncitem.obj
    if not (inspect.iscoroutinefunction(test) and FIXTURES.intersection(pyfuncitem.fixturenames)):
        return None
    import asyncio

    names = pyfuncitem.funcargs.keys() & inspect.signature(test).parameters.keys()
    asyncio.run(test(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


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
