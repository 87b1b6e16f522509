"""roquet controller: elects masters of brokers that replicate, alone or inside a name server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from roquet.cli.command_options import option
from roquet.cli.process import runtime
from roquet.cli.servers.server_options import (
    HOST,
    MetricsOptions,
    SecurityOptions,
    any_port,
    given,
    settings_file,
)
from roquet.cli.terminal import output
from roquet.controller.config import MEMORY_STORE, PORT, ControllerConfig
from roquet.controller.settings import read_settings
from roquet.model.errors import ConfigError, FieldError
from roquet.net.tls import Tls
from roquet.net.tls_properties import take_tls
from roquet.wire.properties_file import read_properties

DEFAULT_STORE: Final = "file:roquet-controller"
"""Directory of a controller's state, below the working directory."""


class EtcdOptions(MetricsOptions):
    """Options of a controller that keeps its state in an etcd with TLS."""

    etcd_ca: Path | None = option("Who signs etcd's certificates.", metavar="PEM")
    etcd_cert: Path | None = option("The certificate that etcd is shown.", metavar="PEM")
    etcd_key: Path | None = option("Its private key.", metavar="PEM")


class ControllerOptions(SecurityOptions, EtcdOptions):
    """Options of `roquet controller`."""

    store: str | None = option(
        "file:DIR, etcd:HOST:PORT[,...], etcd+https:HOST:PORT[,...] or memory; "
        f"{DEFAULT_STORE} if nothing says it.",
        metavar="STORE",
    )
    port: int | None = any_port(PORT)
    host: str | None = HOST
    advertise: str | None = option("The address brokers are told.", metavar="HOST[:PORT]")
    config: Path | None = settings_file("A controller.conf, with Apache's keys or ours.")


def controller(options: ControllerOptions) -> None:
    """Start a controller, which elects masters of brokers that replicate.

    With file:DIR it is the only one. Two or more share an etcd: one leads, another takes over.
    """
    settings = {**options.fields_of(ControllerConfig), **options.tls, **options.exporter}
    if options.etcd_ca or options.etcd_cert or options.etcd_key:
        settings["etcd_tls"] = Tls(ca=options.etcd_ca, cert=options.etcd_cert, key=options.etcd_key)
    loaded = load_settings(options.config) if options.config else ControllerConfig()
    runtime.run(_controller(configured(loaded, settings)))


async def _controller(config: ControllerConfig) -> None:
    from roquet.controller.app import ControllerServer

    stop = runtime.stop_signal()
    async with ControllerServer(config) as server:
        output.echo(f"controller ready at {server.address}")
        await runtime.serve_until(stop)


def load_settings(path: Path) -> ControllerConfig:
    """The settings of a file with Apache's keys or ours. Raises ConfigError."""
    values, tls = take_tls(read_file(path), str(path))
    loaded = read_settings(values, str(path))
    return msgspec.structs.replace(loaded, tls=tls.server, calls=tls.calls)


def read_file(path: Path) -> dict[str, str]:
    """Keys and values of a properties file. Raises ConfigError."""
    try:
        return read_properties(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, FieldError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def configured(loaded: ControllerConfig, options: Mapping[str, Any]) -> ControllerConfig:
    """The settings of a file with those of options, which win; None was not given.

    A store that nobody named survives a restart.
    """
    chosen = given(options)
    if loaded.store == MEMORY_STORE:
        chosen.setdefault("store", DEFAULT_STORE)
    return msgspec.structs.replace(loaded, **chosen)
