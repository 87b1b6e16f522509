"""A cluster for all tests of the transport; each test has a namespace of its own in it."""

from collections.abc import Iterator
from itertools import count

import pytest
from kombu import Connection

import roquet.integrations.celery  # noqa: F401 - registers rocketmq://
from roquet.testing.cluster import BlockingCluster

NAMESPACES = count()


@pytest.fixture(scope="package")
def address() -> Iterator[str]:
    with BlockingCluster(recall_message=True) as cluster:
        yield cluster.namesrv_addr


@pytest.fixture
def url(address: str) -> str:
    return f"rocketmq://{address}/test{next(NAMESPACES)}"


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with Connection(url) as connection:
        yield connection
