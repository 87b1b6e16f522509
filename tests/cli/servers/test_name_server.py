"""roquet namesrv as users start it."""

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import invoke, must_fail, roquet
from tests.cli.servers.test_start import failing, started
from tests.metrics.prometheus_text import parsed

from roquet.cli.servers import name_server
from roquet.cli.servers.controller import DEFAULT_STORE
from roquet.cli.servers.name_server import NameServerSettings, name_server_settings
from roquet.controller.config import ControllerConfig
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.model.errors import CallError, ConfigError, RoquetError, UsageError
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.blocking import BlockingChannel
from roquet.net.channel import Security
from roquet.net.tls import ServerTls, Tls, TlsMode
from roquet.observe.page_client import read_page
from roquet.wire.calls.route import PutKV


def test_a_name_servers_key_without_a_certificate_is_an_error() -> None:
    result = invoke("namesrv", "--tls-key", "server.key")
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
    async with NameServer(NameServerConfig(**local, **shown)) as names, AsyncExitStack() as servers:
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


CLUSTER = {"namesrvs": 2}


def settings_of(namesrv: str, *more: str) -> list[dict[str, str]]:
    lines = roquet("namesrv", "settings", "--json", "-n", namesrv, *more).output.splitlines()
    return [json.loads(line)["settings"] for line in lines]


def test_the_settings_of_each_name_server_are_shown_with_what_may_change(namesrv: str) -> None:
    addresses = namesrv.split(";")
    lines = roquet("namesrv", "settings", "-n", namesrv).output.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == addresses
    assert lines.count("  orderMessageEnable = false") == 2
    assert lines.count("  scanNotActiveBrokerInterval = 5000   (read at the start)") == 2
    first = json.loads(
        roquet("namesrv", "settings", "--json", "-n", namesrv).output.splitlines()[0]
    )
    assert first["name_server"] == addresses[0]
    assert "logLevels" in first["changeable"]
    assert "listenPort" not in first["changeable"]


def test_settings_without_effect_are_shown_when_asked_for(namesrv: str) -> None:
    few, many = settings_of(namesrv)[0], settings_of(namesrv, "--all")[0]
    assert many.items() > few.items()
    assert many["serverSelectorThreads"] == "3"
    assert "serverSelectorThreads" not in few


def test_a_setting_is_changed_at_every_name_server_after_a_preview(namesrv: str) -> None:
    first, second = namesrv.split(";")
    change = ("namesrv", "set", "order_messages=true", "enableAllTopicList=false", "-n", namesrv)
    assert roquet(*change, "--dry-run").output.splitlines() == [
        f"{first}: order_messages is false, then true",
        f"{first}: enableAllTopicList is true, then false",
        f"{second}: order_messages is false, then true",
        f"{second}: enableAllTopicList is true, then false",
        "nothing was changed (--dry-run)",
    ]
    assert settings_of(namesrv)[0]["orderMessageEnable"] == "false"
    done = roquet(*change, "--yes").output.splitlines()[-1]
    assert done == f"{first}, {second}: changed until the next start"
    for values in settings_of(namesrv):
        assert (values["orderMessageEnable"], values["enableAllTopicList"]) == ("true", "false")
    back = roquet("namesrv", "set", "order_messages=false", "-y", "--json", "-n", namesrv)
    assert json.loads(back.stdout.splitlines()[1]) == {
        "name_server": second,
        "key": "order_messages",
        "now": "true",
        "then": "false",
        "changed": True,
    }


def test_the_answer_no_changes_nothing_and_sets_the_exit_code(namesrv: str) -> None:
    refused = roquet("namesrv", "set", "notify_lowest_id=true", "-n", namesrv, typed="n\n")
    assert refused.exit_code == 1
    assert "Change 1 setting of 2 name servers until the next start?" in refused.output
    assert settings_of(namesrv)[0]["notifyMinBrokerIdChanged"] == "false"


def test_what_would_change_nothing_is_an_error(namesrv: str) -> None:
    change = ("namesrv", "set", "-y", "-n", namesrv)
    must_fail(UsageError, "no setting 'order_message'; did you mean", *change, "order_message=true")
    must_fail(UsageError, "reads port at its start", *change, "port=1")
    must_fail(UsageError, "reads kvConfigPath at its start", *change, "kvConfigPath=/tmp/x")
    must_fail(UsageError, "are one setting", *change, "logLevels=INFO", "log_levels=DEBUG")
    must_fail(UsageError, "is none of DEBUG", *change, "log_levels=LOUD")


def test_a_name_server_that_does_not_answer_is_named_and_nothing_is_changed(namesrv: str) -> None:
    first = namesrv.split(";")[0]
    both = f"{first};127.0.0.1:1"
    shown = invoke("namesrv", "settings", "-n", both)
    assert shown.output.startswith(first)
    assert isinstance(shown.exception, RoquetError)
    with pytest.raises(RoquetError, match="nothing was changed, since not all answer: 127"):
        roquet("namesrv", "set", "notify_lowest_id=true", "-y", "-n", both)
    assert settings_of(first)[0]["notifyMinBrokerIdChanged"] == "false"


def test_all_settings_of_a_genuine_name_server_but_its_files_may_change() -> None:
    values = {"listenPort": "9876", "kvConfigPath": "/x", "waitSecondsForService": "45"}
    assert name_server.may_change(values, "listenPort")
    assert not name_server.may_change(values, "kvConfigPath")
    with pytest.raises(UsageError, match="has no setting 'log_levels'"):
        name_server.setting_key({"a:1": values}, "log_levels")


def test_namesrv_starts_a_name_server_and_has_commands_for_running_ones() -> None:
    text = roquet("namesrv", "--help").output
    assert "Start a name server" in text
    assert "--controller-port" in text
    assert "settings" in text
