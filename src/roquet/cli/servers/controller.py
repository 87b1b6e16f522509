"""roquet controller: elects masters of brokers that replicate, alone or inside a name server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from roquet.cli.process import runtime
from roquet.cli.servers.start import (
    ALL_INTERFACES,
    TlsCertOption,
    TlsClientCaOption,
    TlsKeyOption,
    VerboseOption,
    server_tls,
)
from roquet.cli.terminal import output
from roquet.controller.config import MEMORY_STORE, PORT, ControllerConfig

if TYPE_CHECKING:
    from roquet.net.tls import ServerTls

DEFAULT_STORE = "file:roquet-controller"
"""Directory of a controller's state, below the working directory."""


def controller(  # noqa: PLR0913 - each is an option
    *,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="STORE",
            help=f"file:DIR, etcd:HOST:PORT[,...] or memory; {DEFAULT_STORE} if nothing says it.",
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help=f"0 takes any free one; {PORT} if nothing says it.")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="The interface to listen on.")] = None,
    advertise: Annotated[
        str | None,
        typer.Option("--advertise", metavar="HOST[:PORT]", help="The address brokers are told."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="A controller.conf, with Apache's keys or ours."),
    ] = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_client_ca: TlsClientCaOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Start a controller, which elects masters of brokers that replicate.

    With file:DIR it is the only one. Two or more share an etcd: one leads, another takes over.
    """
    runtime.log_to_stderr(verbose=verbose)
    options = {"store": store, "port": port, "host": host, "advertise": advertise}
    tls = server_tls(tls_cert, tls_key, tls_client_ca)
    runtime.run(_controller(configured(_loaded(config), options, tls)))


def configured(
    loaded: ControllerConfig, options: dict[str, Any], tls: "ServerTls | None"
) -> ControllerConfig:
    """The settings of a file with those of options, which win; a store that survives a restart."""
    chosen = {name: value for name, value in options.items() if value is not None}
    if loaded.store == MEMORY_STORE:
        chosen.setdefault("store", DEFAULT_STORE)
    return msgspec.structs.replace(loaded, **chosen, tls=tls)


def _loaded(path: Path | None) -> ControllerConfig:
    from roquet.controller.settings import read_settings
    from roquet.model.errors import ConfigError, FieldError
    from roquet.wire.properties_file import read_properties

    if path is None:
        return ControllerConfig(host=ALL_INTERFACES)
    try:
        values = read_properties(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, FieldError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return read_settings(values, str(path))


async def _controller(config: ControllerConfig) -> None:
    from roquet.controller.app import ControllerServer

    stop = runtime.stop_signal()
    async with ControllerServer(config) as server:
        output.echo(f"controller ready at {server.address}")
        await stop.wait()
