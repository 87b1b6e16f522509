"""Server processes: the command line of each process of `roquet serve`, and its start.

Name server and controllers have no broker.conf: they get what it says of TLS as options. A file of
their own, in their directory, takes the place of that. Their users are those of one file for all.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from roquet.broker.settings.config import BrokerConfig
from roquet.cli.process.child_processes import ChildProcess, ChildProcessFailed, StartProcess
from roquet.cli.servers.serve_plan import BrokerProcess, ControllerPlan, ControllerProcess
from roquet.cli.servers.server_options import ALL_INTERFACES
from roquet.cli.servers.supervisor_metrics import page_addresses
from roquet.model.errors import ConfigError
from roquet.model.settings import join_address
from roquet.net.address import LOOPBACK
from roquet.net.tls import ServerTls, Tls, TlsMode
from roquet.store.filesystem.private_files import make_directories

if TYPE_CHECKING:
    from roquet.client.config import ClientConfig

OWN_CONFIG: Final = "broker.conf"
"""File in the directory of a process that is read in place of the one for all."""

OWN_NAME_SERVER_CONFIG: Final = "namesrv.conf"
OWN_CONTROLLER_CONFIG: Final = "controller.conf"
"""Files in the directories of name server and controllers, with settings of their own."""

RECOVERY_TIMEOUT_S: Final = 4 * 60 * 60
"""Longest start of a broker: after a crash it may have to read its whole log, a second a gigabyte.
One that is ended before would begin anew."""

PROXY: Final = "proxy"
"""Name of the process that serves RocketMQ 5's clients, and of its log."""

NAME_SERVER: Final = "namesrv"
"""Name of the name server's process, its directory and its log."""

ETCD_MODULE: Final = "roquet.cli.process.guarded_etcd"

_NO_OTHER_CALLS: Final = (
    "the name server and controllers of `roquet serve` call brokers with tls_ca and the certificate"
    " of the brokers' servers alone: with tls_client_cert, tls_check_host, tls_verify, or with"
    " tls.enable and no tls_ca, give each a {} in its directory below --data"
)
_NO_PASSWORD: Final = (
    "tls_key_password: the name server and controllers of `roquet serve` get no password of a key:"
    " give each a {} in its directory below --data, with tls.server.keyPassword"
)
_NO_PASSWORD_OF_PROXY: Final = (
    "tls_key_password: the proxy of `roquet serve` gets no password of a key: leave --grpc-port out"
    " and start `roquet proxy` beside it, with a key that has none"
)


class PortHint(NamedTuple):
    """Words of a process about a port in use, and those that name the option of `roquet serve`."""

    words: str
    ours: str


NAME_SERVER_HINT: Final = PortHint("--port", "--namesrv-port")
ETCD_HINT: Final = PortHint("choose another port", "choose another with --controller-port")
CONTROLLER_HINT: Final = PortHint("--port", "--controller-port")
BROKER_HINT: Final = PortHint("haListenPort", "--port")
"""The port for replicas is the one above a broker's own, whatever its settings say."""


PROXY_HINT: Final = PortHint("port:", "--grpc-port:")


class ServerStart(NamedTuple):
    """A server that is no broker, and how it is started."""

    title: str
    start: StartProcess


class ServerProcesses(msgspec.Struct, kw_only=True):
    """The processes of `roquet serve`, and how each is started."""

    brokers: Sequence[BrokerProcess]
    namesrv_port: int
    data: Path
    controllers: ControllerPlan | None = None
    config: Path | None = None
    advertise: str | None = None
    host: str | None = None
    grpc_port: int | None = None
    """Port for RocketMQ 5's clients; None: they are not served."""
    metrics_port: int | None = None
    """The pages of metrics are above it; None: nowhere."""
    access_file: Path | None = None
    """Users of the name server and of controllers: brokers have their own."""
    shared: BrokerConfig | None = None
    """Settings of all brokers: their TLS is that of name server and controllers, too."""

    @property
    def metrics_pages(self) -> Mapping[str, str]:
        """HOST:PORT of the metrics page of each process, by name."""
        if self.metrics_port is None:
            return {}
        electing = self.controllers.processes if self.controllers is not None else []
        names = [NAME_SERVER, *(one.name for one in electing), *(one.name for one in self.brokers)]
        names += [] if self.grpc_port is None else [PROXY]
        return page_addresses(self.metrics_port, names)

    @property
    def logs(self) -> Path:
        """Directory of the logs of all processes."""
        return self.data / "logs"

    def directory(self, broker: BrokerProcess) -> Path:
        """Directory of a broker's messages."""
        return self.data / broker.name

    def make_folders(self) -> None:
        """Create a directory for each broker and one for the logs."""
        for name in ("logs", NAME_SERVER, *(broker.name for broker in self.brokers)):
            make_directories(self.data / name)

    @property
    def namesrv_address(self) -> str:
        """The name server's address for the brokers."""
        host = self.host or ALL_INTERFACES
        return join_address(LOOPBACK if host in {ALL_INTERFACES, "::"} else host, self.namesrv_port)

    def support(self) -> Iterator[ServerStart]:
        """The servers that brokers need, in the order in which they are started."""
        yield ServerStart("name server", self.namesrv)
        if self.controllers is None:
            return
        if self.controllers.etcd is not None:
            yield ServerStart("etcd", self.etcd)
        for process in self.controllers.processes:
            yield ServerStart("controller", partial(self.controller, process))

    async def namesrv(self) -> ChildProcess:
        """Start the name server; returns when it is ready."""
        arguments = ["namesrv", "--port", str(self.namesrv_port)]
        arguments += ["--host", self.host or ALL_INTERFACES]
        directory = self.data / NAME_SERVER
        arguments += ["--data", str(directory)]
        arguments += name_server_options(
            directory, OWN_NAME_SERVER_CONFIG, self.shared, self.access_file
        )
        return await self._start(NAME_SERVER, arguments, NAME_SERVER_HINT)

    async def etcd(self) -> ChildProcess:
        """Start the etcd that controllers share; returns when it answers."""
        assert self.controllers is not None, "there are controllers"
        address = self.controllers.etcd_address
        command = self.controllers.etcd_command(str(self.data / "etcd"))
        return await self._start("etcd", [address, *command], ETCD_HINT, module=ETCD_MODULE)

    async def controller(self, process: ControllerProcess) -> ChildProcess:
        """Start a controller; returns when it is ready."""
        assert self.controllers is not None, "there are controllers"
        is_alone = self.controllers.etcd is None
        file, etcd = f"file:{self.data / process.name}", f"etcd:{self.controllers.etcd_address}"
        arguments = ["controller", "--port", str(process.port)]
        arguments += ["--store", file if is_alone else etcd]
        arguments += ["--host", self.host or ALL_INTERFACES]
        arguments += ["--advertise", join_address(self.controllers.host, process.port)]
        directory = self.data / process.name
        arguments += security_options(
            directory, OWN_CONTROLLER_CONFIG, self.shared, self.access_file
        )
        return await self._start(process.name, arguments, CONTROLLER_HINT)

    async def broker(self, broker: BrokerProcess) -> ChildProcess:
        """Start a broker; returns when it is ready."""
        directory = self.directory(broker)
        arguments = ["broker", "--name", broker.broker, "--port", str(broker.port)]
        if self.host is not None:
            arguments += ["--host", self.host]
        arguments += ["--data", str(directory)]
        arguments += ["--namesrv", self.namesrv_address]
        own = directory / OWN_CONFIG
        if (config := own if own.exists() else self.config) is not None:
            arguments += ["--config", str(config)]
        if self.advertise is not None:
            arguments += ["--advertise", f"{self.advertise}:{broker.port}"]
        return await self._start(
            broker.name,
            arguments,
            BROKER_HINT,
            environ=broker.environ,
            timeout_s=RECOVERY_TIMEOUT_S,
        )

    async def proxy(self) -> ChildProcess:
        """Start the proxy for RocketMQ 5's clients; returns when it is ready."""
        arguments = ["proxy", "--port", str(self.grpc_port), "--namesrv", self.namesrv_address]
        arguments += ["--host", self.host or ALL_INTERFACES]
        if (shared := self.shared) is None:
            return await self._start(PROXY, arguments, PROXY_HINT)
        arguments += _pair_options(shared.server_tls, _NO_PASSWORD_OF_PROXY)
        if shared.authentication_enabled:
            arguments.append("--broker-users")
            arguments += [] if shared.authorization_enabled else ["--no-policies"]
        if shared.proxy_protocol_from:
            arguments += ["--proxy-from", ",".join(shared.proxy_protocol_from)]
        return await self._start(PROXY, arguments, PROXY_HINT, environ=calls_environ(shared))

    async def _start(
        self,
        name: str,
        arguments: Sequence[str],
        hint: PortHint,
        *,
        module: str = "roquet",
        environ: Mapping[str, str] = {},
        timeout_s: float | None = None,
    ) -> ChildProcess:
        logs = self.logs
        if (page := self.metrics_pages.get(name)) is not None:
            arguments = [*arguments, "--metrics", page]
        child = await ChildProcess.start(name, module, *arguments, logs=logs, environ=environ)
        try:
            child.address = await child.wait_ready("ready at ", timeout_s)
        except BaseException as error:
            await child.stop()
            if isinstance(error, ChildProcessFailed):
                raise ChildProcessFailed(str(error).replace(hint.words, hint.ours)) from None
            raise
        return child


def security_options(
    directory: Path, own_config: str, brokers: BrokerConfig | None, access_file: Path | None = None
) -> list[str]:
    """Options of a name server or controller: a file of its own, else the TLS of the brokers.

    With `access_file` it checks users. Raises ConfigError.
    """
    access = [] if access_file is None else ["--access-file", str(access_file)]
    own = directory / own_config
    if own.exists():
        return ["--config", str(own), *access]
    if brokers is None:
        return access
    options = _tls_options(brokers, own_config)
    if access and brokers.certificate_users and "--tls-client-ca" in options:
        access.append("--certificate-users")
    return [*options, *access]


def name_server_options(
    directory: Path, own_config: str, brokers: BrokerConfig | None, access_file: Path | None = None
) -> list[str]:
    """Options of a name server: those of security, and what controllers do not have."""
    options = security_options(directory, own_config, brokers, access_file)
    if brokers is not None and brokers.proxy_protocol_from and "--config" not in options:
        options += ["--proxy-from", ",".join(brokers.proxy_protocol_from)]
    return options


def client_config(brokers: BrokerConfig | None) -> "ClientConfig":
    """Settings by which `roquet serve` asks its own servers, beside those of the environment."""
    from roquet.client.config import ClientConfig

    if brokers is None:
        return ClientConfig()
    credentials = brokers.inner_credentials
    return ClientConfig(
        tls=brokers.calls_tls,
        access_key=credentials.access_key if credentials else None,
        secret_key=credentials.secret_key if credentials else None,
    )


def calls_environ(brokers: BrokerConfig) -> dict[str, str]:
    """Environment of a client that calls the servers as brokers call each other."""
    from roquet.client.connection import security  # most servers need no client

    tls, own = brokers.calls_tls, brokers.inner_credentials
    values = {
        security.ACCESS_KEY_VARIABLE: own.access_key if own else None,
        security.SECRET_KEY_VARIABLE: own.secret_key if own else None,
        security.TLS_VARIABLE: "true" if tls else None,
        security.TLS_CA_VARIABLE: tls.ca if tls else None,
        security.TLS_CERT_VARIABLE: tls.cert if tls else None,
        security.TLS_KEY_VARIABLE: tls.key if tls else None,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def _pair_options(tls: ServerTls | None, no_password: str) -> list[str]:
    """Options for the certificate of the brokers' servers; none where TLS is off."""
    if tls is None or tls.mode is TlsMode.DISABLED:
        return []
    if tls.key_password is not None:
        raise ConfigError(no_password)
    options = ["--tls-cert", str(tls.cert), "--tls-mode", tls.mode.value]
    return options if tls.key is None else [*options, "--tls-key", str(tls.key)]


def _tls_options(brokers: BrokerConfig, own_config: str) -> list[str]:
    tls = brokers.server_tls
    options = _pair_options(tls, _NO_PASSWORD.format(own_config))
    if tls is None or not options:
        return []
    if tls.client_ca is not None:
        auth = tls.client_auth.value
        options += ["--tls-client-ca", str(tls.client_ca), "--tls-client-auth", auth]
    if (calls := brokers.calls_tls) is not None:
        if calls.ca is None or calls != Tls(ca=calls.ca, cert=tls.cert, key=tls.key):
            raise ConfigError(_NO_OTHER_CALLS.format(own_config))
        options += ["--tls-ca", str(calls.ca)]
    return options
