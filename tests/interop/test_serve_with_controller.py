"""`roquet serve` with one controller: an operator moves the lead, and the lead is kept."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import randrange

import pytest
from tests.cli.servers.test_supervisor import Serving, log_of, served
from typer.testing import CliRunner

from roquet.cli.main import app
from roquet.client.producer import Producer

pytestmark = pytest.mark.interop


async def test_with_a_controller_the_lead_moves_and_comes_back_with_what_was_stored(
    tmp_path: Path,
) -> None:
    async with controlled(tmp_path, "--replicas", "1") as running:
        assert [row[:3] for row in running.rows] == [
            ["broker-a", "1", "master"],
            ["broker-a", "2", "replica"],
        ]
        namesrv = f"127.0.0.1:{running.namesrv_port}"
        async with Producer(namesrv) as producer:
            assert (await producer.send("orders", b"before")).ok
            printed = await roquet("cluster", "elect", "broker-a", "-n", namesrv)
            assert f"broker-a: 2 at {running.rows[1][3]} leads in epoch 2, 1 at" in printed
            assert (await producer.send("orders", b"after")).ok
        printed = await roquet("cluster", "elect", "broker-a", "--to", "2", "--json", "-n", namesrv)
        assert json.loads(printed)["is_new"] is False
        running.process.send_signal(signal.SIGINT)
        assert await running.process.wait() == 130
        assert running.process.stderr is not None
        assert await running.process.stderr.read() == b""
        for name in ("broker-a", "broker-a-1"):
            assert b"after" in log_of(tmp_path / name)


@asynccontextmanager
async def controlled(directory: Path, *options: str) -> AsyncIterator[Serving]:
    """Brokers with one controller, whose port is below all others."""
    controller_port = randrange(8_000, 10_000)
    options = (*options, "--controllers", "1", "--controller-port", str(controller_port))
    async with served(directory, *options, processes=2, controller=controller_port) as running:
        yield running


async def roquet(*arguments: str) -> str:
    """Output of a command that succeeds."""
    run = partial(CliRunner().invoke, app, list(arguments), catch_exceptions=False)
    result = await asyncio.to_thread(run)
    assert result.exit_code == 0
    return result.stdout
