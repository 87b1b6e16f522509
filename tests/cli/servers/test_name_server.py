"""roquet namesrv as users start it."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.cli.servers.test_start import failing, started
from tests.metrics.prometheus_text import parsed
from typer.testing import CliRunner

from roquet.cli.main import app
from roquet.cli.servers import name_server
from roquet.controller.config import ControllerConfig
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.model.errors import CallError, UsageError
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.blocking import BlockingChannel
from roquet.net.channel import Security
from roquet.net.tls import Tls
from roquet.observe.page_client import read_page
from roquet.wire.calls.route import PutKV


def test_a_name_servers_key_without_a_certificate_is_an_error() -> None:
    result = CliRunner().invoke(app, ["namesrv", "--tls-key", "server.key"])
    assert isinstance(result.exception, UsageError)
    assert "of no use without --tls-cert" in str(result.exception)


def test_a_name_server_with_a_certificate_takes_tls(tmp_path: Path) -> None:
    files = Path(__file__).parents[2] / "certificates"
    options = ("--tls-cert", str(files / "server.pem"), "--tls-key", str(files / "server.key"))
    arguments = ("namesrv", "--port", "0", "--host", "127.0.0.1", *options)
    with started(*arguments, cwd=tmp_path) as (printed, _):
        address = printed.split()[-1]
        trusting = Security(context=Tls(ca=files / "ca.pem").context())
        with BlockingChannel(address, security=trusting) as channel:
            channel.call(PutKV(namespace="n", key="k", value="v"))
        with BlockingChannel(address) as plain, pytest.raises(CallError):
            plain.call(PutKV(namespace="n", key="k", value="v"))


async def test_the_page_of_a_name_server_says_whether_the_controller_in_it_leads() -> None:
    local: dict[str, Any] = {"host": "127.0.0.1", "port": 0}
    shown: dict[str, Any] = {"metrics_exporter": MetricsExporterType.PROM, "metrics_port": 0}
    async with (
        NameServer(NameServerConfig(**local, **shown)) as names,
        AsyncExitStack() as servers,
    ):
        await name_server.embed_controller(servers, names, ControllerConfig(**local))
        address = f"127.0.0.1:{names.metrics_port}"
        page = parsed(await read_page(address, "/metrics", timeout_ms=5_000))
    assert page.one("roquet_controller_is_leader", node_type="namesrv") == 1
    assert page.one("roquet_brokers", node_type="namesrv") == 0


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("namesrv --port 0 --controller memory --controller-port 70000", "--controller-port"),
        ("controller --store memory --port 70000", "--port"),
    ],
)
def test_a_number_that_is_no_port_is_one_clear_sentence(
    command: str, option: str, tmp_path: Path
) -> None:
    code, output = failing(*command.split(), cwd=tmp_path)
    assert code == 2
    assert output.splitlines()[-1].endswith(f"is no port: choose one from 1 to 65535 with {option}")
    assert "Traceback" not in output
