"""Which name servers a command asks: those of an option, of the environment, or `roquet dev`'s."""

import os
from typing import Annotated, Final

import typer

from roquet.model.errors import ConfigError, UsageError

DEV_NAMESRV: Final = "127.0.0.1:9876"
"""Where `roquet dev` has its name server."""

NamesrvOption = Annotated[
    str | None,
    typer.Option(
        "--namesrv",
        "-n",
        metavar="HOST:PORT[;...]",
        help=f"The name servers; else NAMESRV_ADDR, else {DEV_NAMESRV}.",
    ),
]


def namesrv_addresses(given: str | None) -> str:
    """The name servers that an option names, else the environment, else those of `roquet dev`."""
    from roquet.model.settings import parse_addresses

    name, text = ("--namesrv", given) if given else ("NAMESRV_ADDR", os.environ.get("NAMESRV_ADDR"))
    try:
        return ";".join(parse_addresses(text, name)) if text else DEV_NAMESRV
    except ConfigError as error:
        raise UsageError(str(error)) from None
