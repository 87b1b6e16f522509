"""Options of commands that start servers: where they listen, how they are reached, TLS."""

from pathlib import Path
from typing import Annotated, Final

import typer

from roquet.model.errors import UsageError
from roquet.net.tls import ServerTls

ALL_INTERFACES: Final = "0.0.0.0"

_HOST: Final = typer.Option("--host", help="The interface to listen on.")

HostOption = Annotated[str, _HOST]
SettledHostOption = Annotated[str | None, _HOST]
"""Of a server whose settings may say it, too."""
AdvertiseOption = Annotated[
    str | None,
    typer.Option("--advertise", metavar="HOST[:PORT]", help="The address that clients are told."),
]
DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Where messages are.")
]
MemoryOption = Annotated[bool, typer.Option("--memory", help="Keep everything in memory.")]
TlsCertOption = Annotated[
    Path | None, typer.Option(metavar="PEM", help="Take connections with TLS alone: certificate.")
]
TlsKeyOption = Annotated[
    Path | None, typer.Option(metavar="PEM", help="The certificate's private key.")
]
TlsClientCaOption = Annotated[
    Path | None, typer.Option(metavar="PEM", help="Who signs the certificates clients must show.")
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Log more, on stderr.")]


def server_tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> ServerTls | None:
    """The TLS settings of a server from its options; None without a certificate."""
    if cert is None and (key or client_ca):
        raise UsageError("--tls-key and --tls-client-ca are of no use without --tls-cert")
    return ServerTls(cert=cert, key=key, client_ca=client_ca) if cert else None


def settings_file(names: str) -> object:
    """The option for a file of settings; `names` says what may be in it."""
    return typer.Option("--config", "-c", help=names)


def any_port(default: int) -> object:
    """The option for a port that a file may say, too."""
    return typer.Option(help=f"0 takes any free one; {default} if nothing says it.")
