"""A cluster that checks users, and commands of its super user."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.cli import running
from typer.testing import Result

from roquet.testing.cluster import BlockingCluster
from roquet.wire.signing import Credentials

Roquet = Callable[..., Result]
"""Runs a command: `roquet("acl", "user", "list", typed="…")`."""


@pytest.fixture(scope="package")
def namesrv() -> Iterator[str]:
    with BlockingCluster(
        brokers=2,
        authentication_enabled=True,
        authorization_enabled=True,
        initial_user=Credentials(access_key="root", secret_key="rootsecret"),
    ) as cluster:
        yield cluster.namesrv_addr


@pytest.fixture
def roquet(namesrv: str) -> Roquet:
    environment = {
        "NAMESRV_ADDR": namesrv,
        "ROCKETMQ_ACCESS_KEY": "root",
        "ROCKETMQ_SECRET_KEY": "rootsecret",
    }

    return partial(running.roquet, environ=environment)
