"""Command lines of the processes of `roquet serve`."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roquet.broker.settings.config import BrokerConfig
from roquet.cli.process.child_processes import ChildProcess, ChildProcessFailed, StartProcess
from roquet.cli.servers.serve_plan import ControllerPlan, broker_processes
from roquet.cli.servers.server_processes import (
    ETCD_MODULE,
    OWN_CONFIG,
    RECOVERY_TIMEOUT_S,
    ServerProcesses,
    calls_environ,
    client_config,
    name_server_options,
    security_options,
)
from roquet.model.errors import ConfigError
from roquet.net.tls import ClientAuth, KeyPassword, Tls, TlsMode
from roquet.wire.signing import Credentials


class RecordedStarts:
    """Starts nothing, and keeps what would have been started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.modules: list[str] = []
        self.arguments: list[Sequence[str]] = []
        self.environs: list[Mapping[str, str]] = []
        self.timeouts: list[float | None] = []
        self.failure: str | None = None
        self.stopped = 0
        monkeypatch.setattr(ChildProcess, "start", self.start)

    async def start(
        self, _name: str, module: str, *arguments: str, environ: Mapping[str, str], **_: Any
    ) -> "RecordedStarts":
        self.modules.append(module)
        self.arguments.append(arguments)
        self.environs.append(environ)
        return self

    async def wait_ready(self, _words: str, timeout_s: float | None = None) -> str:
        self.timeouts.append(timeout_s)
        if self.failure is not None:
            raise ChildProcessFailed(self.failure)
        return "h:1"

    async def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> RecordedStarts:
    return RecordedStarts(monkeypatch)


def processes(
    folder: Path, controllers: ControllerPlan | None = None, **options: Any
) -> ServerProcesses:
    addresses = controllers.addresses if controllers else ()
    brokers = broker_processes(1, 1, None, 10911, addresses)
    return ServerProcesses(
        brokers=brokers, controllers=controllers, namesrv_port=9876, data=folder, advertise="mq",
        **options,
    )  # fmt: skip


async def test_without_controllers_a_name_server_is_all_that_brokers_need(
    starts: RecordedStarts, tmp_path: Path
) -> None:
    plan = processes(tmp_path)
    (names,) = plan.support()
    assert names.title == "name server"
    await names.start()
    assert starts.arguments[0][:3] == ("namesrv", "--port", "9876")


async def test_a_file_with_users_is_the_name_servers_and_the_controllers(
    starts: RecordedStarts, tmp_path: Path
) -> None:
    controllers = ControllerPlan(count=1, port=9878, host="10.0.0.1")
    plan = processes(tmp_path, controllers, access_file=tmp_path / "access.json")
    for server in plan.support():
        await server.start()
    await plan.broker(plan.brokers[0])
    given = ("--access-file", str(tmp_path / "access.json"))
    assert [arguments[-2:] == given for arguments in starts.arguments] == [True, True, False]


async def test_the_only_controller_has_a_file_and_brokers_know_it(
    starts: RecordedStarts, tmp_path: Path
) -> None:
    plan = processes(tmp_path, ControllerPlan(count=1, port=9878, host="10.0.0.1"))
    _, controller = plan.support()
    await controller.start()
    assert starts.arguments[0] == (
        "controller", "--port", "9878", "--store", f"file:{tmp_path / 'controller'}",
        "--host", "0.0.0.0", "--advertise", "10.0.0.1:9878",
    )  # fmt: skip
    for broker in plan.brokers:
        await plan.broker(broker)
    assert starts.environs[1]["ROQUET_CONTROLLERS"] == "10.0.0.1:9878"
    assert starts.environs[2]["ROQUET_MIN_IN_SYNC_REPLICAS"] == "2"
    assert starts.environs[2]["ROQUET_IN_SYNC_REPLICAS"] == "2"
    assert "ROQUET_BROKER_ROLE" not in starts.environs[2]


async def test_several_controllers_are_started_after_the_etcd_that_they_share(
    starts: RecordedStarts, tmp_path: Path
) -> None:
    controllers = ControllerPlan(count=2, port=9878, host="h", etcd="/bin/etcd")
    plan = processes(tmp_path, controllers)
    titles = [server.title for server in plan.support()]
    assert titles == ["name server", "etcd", "controller", "controller"]
    for server in plan.support():
        await server.start()
    assert starts.modules == ["roquet", ETCD_MODULE, "roquet", "roquet"]
    assert starts.arguments[1][:2] == ("127.0.0.1:9879", "/bin/etcd")
    assert "etcd:127.0.0.1:9879" in starts.arguments[2]
    assert "etcd:127.0.0.1:9879" in starts.arguments[3]


async def test_a_file_in_the_directory_of_a_broker_is_its_own(
    starts: RecordedStarts, tmp_path: Path
) -> None:
    plan = processes(tmp_path)
    plan.make_folders()
    own = plan.directory(plan.brokers[1]) / OWN_CONFIG
    own.write_text("")
    for broker in plan.brokers:
        await plan.broker(broker)
    assert str(own) not in starts.arguments[0]
    assert str(own) in starts.arguments[1]
    assert "mq:11911" in starts.arguments[1]


async def test_a_process_that_is_never_ready_is_stopped(
    starts: RecordedStarts, tmp_path: Path
) -> None:
    starts.failure = "it never was ready"
    with pytest.raises(ChildProcessFailed, match="it never was ready"):
        await processes(tmp_path).namesrv()
    assert starts.stopped == 1


async def test_each_process_shows_its_metrics_on_a_port_of_its_own(
    starts: RecordedStarts, tmp_path: Path
) -> None:
    plan = ServerProcesses(
        brokers=broker_processes(1, 1, None, 10911, ()),
        namesrv_port=9876,
        data=tmp_path,
        metrics_port=5557,
    )
    plan.make_folders()
    await plan.namesrv()
    for broker in plan.brokers:
        await plan.broker(broker)
    pages = [arguments[-2:] for arguments in starts.arguments]
    assert pages == [("--metrics", f"127.0.0.1:{port}") for port in (5558, 5559, 5560)]
    assert list(plan.metrics_pages) == ["namesrv", "broker-a", "broker-a-1"]


async def test_a_broker_that_recovers_for_long_is_waited_for(
    starts: RecordedStarts, tmp_path: Path
) -> None:
    plan = processes(tmp_path)
    plan.make_folders()
    await plan.namesrv()
    await plan.broker(plan.brokers[0])
    assert starts.timeouts == [None, RECOVERY_TIMEOUT_S]


async def test_name_server_and_controllers_share_the_tls_of_the_brokers(
    starts: RecordedStarts, tmp_path: Path
) -> None:
    plan = ServerProcesses(
        brokers=broker_processes(1, 1, None, 10911, ()),
        controllers=ControllerPlan(count=1, port=9878, host="h"),
        namesrv_port=9876,
        data=tmp_path,
        shared=BrokerConfig(tls_cert=Path("c.pem"), proxy_protocol_from=("10.0.0.5",)),
    )
    for server in plan.support():
        await server.start()
    names, controller = starts.arguments
    tls = ("--tls-cert", "c.pem", "--tls-mode", "enforcing")
    assert names[-6:] == (*tls, "--proxy-from", "10.0.0.5")
    assert controller[-4:] == tls


async def test_a_proxy_has_the_certificate_of_the_brokers_and_calls_as_they_do(
    starts: RecordedStarts, tmp_path: Path
) -> None:
    own = Credentials(access_key="inner", secret_key="secret")
    settings = BrokerConfig(
        **PAIR,
        tls_ca=Path("ca.pem"),
        authentication_enabled=True,
        inner_credentials=own,
        proxy_protocol_from=("10.0.0.5",),
    )
    plan = msgspec.structs.replace(processes(tmp_path), grpc_port=8081, host="127.0.0.1")
    for shared in (None, BrokerConfig(), settings):
        await msgspec.structs.replace(plan, shared=shared).proxy()
    alone, plain, secured = starts.arguments
    assert alone == plain
    assert alone[1:] == ("--port", "8081", "--namesrv", "127.0.0.1:9876", "--host", "127.0.0.1")
    assert secured[len(plain) :] == (
        "--tls-cert", "c.pem", "--tls-mode", "enforcing", "--tls-key", "k.pem",
        "--broker-users", "--no-policies", "--proxy-from", "10.0.0.5",
    )  # fmt: skip
    assert calls_environ(settings) == {
        "ROCKETMQ_ACCESS_KEY": "inner",
        "ROCKETMQ_SECRET_KEY": "secret",
        "ROCKETMQ_TLS": "true",
        "ROCKETMQ_TLS_CA": "ca.pem",
        "ROCKETMQ_TLS_CERT": "c.pem",
        "ROCKETMQ_TLS_KEY": "k.pem",
    }
    plan = msgspec.structs.replace(plan, metrics_port=5557)
    assert list(plan.metrics_pages) == ["namesrv", "broker-a", "broker-a-1", "proxy"]
    hidden = BrokerConfig(**PAIR, tls_key_password=KeyPassword("hidden"))
    with pytest.raises(ConfigError, match="start `roquet proxy` beside it"):
        await msgspec.structs.replace(plan, shared=hidden).proxy()
    starts.failure = "port: 127.0.0.1:8081 cannot be used"
    with pytest.raises(ChildProcessFailed, match="--grpc-port: 127"):
        await plan.proxy()


async def test_a_port_in_use_is_changed_by_an_option_of_the_command_that_was_given(
    starts: RecordedStarts, tmp_path: Path
) -> None:
    controllers = ControllerPlan(count=2, port=9878, host="h", etcd="/bin/etcd")
    plan = processes(tmp_path, controllers)
    name_server, etcd, controller, _ = (server.start for server in plan.support())

    async def text_of(start: StartProcess, text: str) -> str:
        starts.failure = text
        with pytest.raises(ChildProcessFailed) as caught:
            await start()
        return str(caught.value)

    in_use = "port 9 is in use: stop the other process or choose another with --port"
    assert (await text_of(name_server, in_use)).endswith("choose another with --namesrv-port")
    assert (await text_of(controller, in_use)).endswith("choose another with --controller-port")
    in_use_by_etcd = "h:9 is in use: stop the other process, or choose another port"
    assert (await text_of(etcd, in_use_by_etcd)).endswith("choose another with --controller-port")
    broker = partial(plan.broker, plan.brokers[0])
    assert await text_of(broker, in_use) == in_use
    for_replicas = "cannot listen for replicas on h:9: in use; choose another port with "
    assert await text_of(broker, f"{for_replicas}haListenPort") == f"{for_replicas}--port"


OWN = "namesrv.conf"
PAIR: dict[str, Any] = {"tls_cert": Path("c.pem"), "tls_key": Path("k.pem")}


def test_brokers_without_tls_say_nothing(tmp_path: Path) -> None:
    assert security_options(tmp_path, OWN, None) == []
    assert security_options(tmp_path, OWN, BrokerConfig()) == []
    disabled = BrokerConfig(**PAIR, tls_mode=TlsMode.DISABLED)
    assert security_options(tmp_path, OWN, disabled) == []


def test_all_that_brokers_say_of_certificates_is_an_option(tmp_path: Path) -> None:
    brokers = BrokerConfig(
        **PAIR, tls_mode=TlsMode.PERMISSIVE, tls_client_ca=Path("ca.pem"),
        tls_client_auth=ClientAuth.OPTIONAL, tls_ca=Path("other.pem"),
    )  # fmt: skip
    assert security_options(tmp_path, OWN, brokers) == [
        "--tls-cert", "c.pem", "--tls-mode", "permissive", "--tls-key", "k.pem",
        "--tls-client-ca", "ca.pem", "--tls-client-auth", "optional", "--tls-ca", "other.pem",
    ]  # fmt: skip


def test_a_file_of_its_own_takes_the_place_of_that(tmp_path: Path) -> None:
    (tmp_path / OWN).write_text("")
    brokers = BrokerConfig(**PAIR, proxy_protocol_from=("10.0.0.5",))
    assert name_server_options(tmp_path, OWN, brokers) == ["--config", str(tmp_path / OWN)]


def test_a_password_of_a_key_is_refused_with_advice(tmp_path: Path) -> None:
    brokers = BrokerConfig(**PAIR, tls_key_password=KeyPassword("hidden"))
    with pytest.raises(ConfigError, match=r"give each a namesrv\.conf in its directory") as refused:
        security_options(tmp_path, OWN, brokers)
    assert "hidden" not in str(refused.value)
    (tmp_path / OWN).write_text("")
    assert security_options(tmp_path, OWN, brokers) == ["--config", str(tmp_path / OWN)]


@pytest.mark.parametrize(
    "calls",
    [
        {"tls_enable": True},
        {"tls_ca": Path("ca.pem"), "tls_check_host": False},
        {"tls_ca": Path("ca.pem"), "tls_client_cert": Path("other.pem")},
    ],
)
def test_other_calls_than_theirs_are_refused_with_advice(
    tmp_path: Path, calls: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=r"give each a namesrv\.conf in its directory"):
        security_options(tmp_path, OWN, BrokerConfig(**PAIR, **calls))


def test_users_are_checked_where_there_is_a_file_of_them(tmp_path: Path) -> None:
    brokers = BrokerConfig(
        **PAIR, tls_client_ca=Path("ca.pem"), authentication_enabled=True, certificate_users=True,
        initial_user=Credentials(access_key="root", secret_key="s"),
    )  # fmt: skip
    assert "--certificate-users" not in name_server_options(tmp_path, OWN, brokers)
    for options_of in (security_options, name_server_options):
        options = options_of(tmp_path, OWN, brokers, Path("users.json"))
        assert options[-3:] == ["--access-file", "users.json", "--certificate-users"]
    assert security_options(tmp_path, OWN, None, Path("users.json"))[0] == "--access-file"


def test_without_certificates_of_clients_none_names_a_user(tmp_path: Path) -> None:
    brokers = BrokerConfig(
        **PAIR, tls_client_ca=Path("ca.pem"), tls_mode=TlsMode.DISABLED,
        authentication_enabled=True, certificate_users=True,
        initial_user=Credentials(access_key="root", secret_key="s"),
    )  # fmt: skip
    options = security_options(tmp_path, OWN, brokers, Path("users.json"))
    assert options == ["--access-file", "users.json"]


def test_its_own_questions_are_signed_as_the_brokers_sign() -> None:
    assert client_config(None).tls is None
    brokers = BrokerConfig(
        tls_ca=Path("ca.pem"), inner_credentials=Credentials(access_key="a", secret_key="s")
    )
    config = client_config(brokers)
    assert (config.tls, config.access_key, config.secret_key) == (Tls(ca=Path("ca.pem")), "a", "s")
