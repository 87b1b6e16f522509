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
from roquet.cli.servers.controller import DEFAULT_STORE
from roquet.cli.servers.name_server import NameServerSettings, name_server_settings
from roquet.controller.config import ControllerConfig
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.model.errors import CallError, ConfigError, UsageError
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.blocking import BlockingChannel
from roquet.net.channel import Security
from roquet.net.tls import ServerTls, Tls, TlsMode
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


NOTHING: dict[str, Any] = {"store": None, "port": None, "host": None}


def of_file(tmp_path: Path, text: str, **embedded: Any) -> NameServerSettings:
    path = tmp_path / "namesrv.conf"
    path.write_text(text)
    return name_server_settings(path, {"port": None}, {**NOTHING, **embedded})


def test_without_a_file_there_is_a_name_server_alone() -> None:
    settings = name_server_settings(None, {"port": 5, "host": None}, NOTHING)
    assert (settings.namesrv.port, settings.namesrv.host) == (5, "0.0.0.0")
    assert settings.controller is None


def test_apaches_key_brings_a_controller_with_keys_of_the_same_file(tmp_path: Path) -> None:
    settings = of_file(
        tmp_path,
        "listenPort=9\nbindAddress=127.0.0.1\nenableControllerInNamesrv=true\n"
        "controllerDLegerGroup=g1\ncontrollerListenPort=10\norderMessageEnable=true\n",
    )
    assert (settings.namesrv.port, settings.namesrv.order_messages) == (9, True)
    controller = settings.controller
    assert controller is not None
    assert (controller.port, controller.host) == (10, "127.0.0.1")
    assert (controller.controllers, controller.store) == ("g1", DEFAULT_STORE)


def test_an_option_brings_one_too(tmp_path: Path) -> None:
    controller = of_file(tmp_path, "", store="memory", port=11).controller
    assert controller is not None
    assert (controller.store, controller.port) == ("memory", 11)


def test_keys_of_a_controller_that_is_not_wanted_do_no_harm(tmp_path: Path) -> None:
    text = "enableControllerInNamesrv=false\ncontrollerDLegerGroup=g1\n"
    assert of_file(tmp_path, text).controller is None


def test_options_without_their_use_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--controller-port is of no use"):
        of_file(tmp_path, "", port=1)
    with pytest.raises(ConfigError, match="neither true nor false"):
        of_file(tmp_path, "enableControllerInNamesrv=perhaps")


def test_the_page_of_metrics_is_the_name_servers(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("metricsExporterType=PROM\nenableControllerInNamesrv=true\n")
    settings = name_server_settings(path, {}, {})
    assert settings.controller is not None
    exporters = settings.namesrv.metrics_exporter, settings.controller.metrics_exporter
    assert exporters == ("PROM", "DISABLE")


def test_keys_of_tls_are_for_the_name_server_and_its_controller(tmp_path: Path) -> None:
    text = "tls.server.certPath=/c.pem\ntls.enable=true\nenableControllerInNamesrv=true\n"
    settings = of_file(tmp_path, text)
    assert settings.controller is not None
    for one in (settings.namesrv, settings.controller):
        assert one.tls == ServerTls(cert=Path("/c.pem"), mode=TlsMode.PERMISSIVE)
        assert one.calls == Tls(check_host=False, verify=False)


def test_a_tls_properties_is_named_in_the_file_and_options_win(tmp_path: Path) -> None:
    (tmp_path / "tls.properties").write_text("tls.server.certPath=/c.pem\n")
    path = tmp_path / "namesrv.conf"
    path.write_text(f"tls.config.file={tmp_path}/tls.properties\nlistenPort=9\n")
    assert name_server_settings(path, {}, {}).namesrv.tls == ServerTls(
        cert=Path("/c.pem"), mode=TlsMode.PERMISSIVE
    )
    option = ServerTls(cert=Path("/other.pem"))
    assert name_server_settings(path, {"tls": option}, {}).namesrv.tls == option
