"""Name server addresses: from --namesrv, else NAMESRV_ADDR, else those of `roquet dev`."""

import os
from typing import Annotated, Final

import typer

from roquet.model.errors import ConfigError, UsageError

DEV_NAMESRV: Final = "127.0.0.1:9876"
"""The name server of `roquet dev`."""

NamesrvOption = Annotated[
    str | None,
    typer.Option(
        "--namesrv",
        "-n",
        metavar="HOST:PORT[;...]",
        help=f"The name servers; else NAMESRV_ADDR, else {DEV_NAMESRV}.",
    ),
]


def namesrv_addresses(option: str | None) -> str:
    """The addresses of --namesrv, else of the environment, else of `roquet dev`."""
    from roquet.model.settings import parse_addresses

    name, text = (
        ("--namesrv", option) if option else ("NAMESRV_ADDR", os.environ.get("NAMESRV_ADDR"))
    )
    try:
        return ";".join(parse_addresses(text, name)) if text else DEV_NAMESRV
    except ConfigError as error:
        raise UsageError(str(error)) from None
