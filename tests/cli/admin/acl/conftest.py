"""A cluster that checks users, and commands of its super user."""

from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner, Result

from roquet.cli.main import app
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
        "COLUMNS": "200",
        "NAMESRV_ADDR": namesrv,
        "ROCKETMQ_ACCESS_KEY": "root",
        "ROCKETMQ_SECRET_KEY": "rootsecret",
    }

    def run(*arguments: str, typed: str | None = None) -> Result:
        result = CliRunner(env=environment).invoke(app, list(arguments), input=typed)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run
