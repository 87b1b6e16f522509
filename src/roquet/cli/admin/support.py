"""roquet support bundle: collects what explains a server's trouble into one file."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roquet.cli.process import runtime
from roquet.cli.terminal import output
from roquet.cli.terminal.output import JsonOption
from roquet.model.printable_text import size_text

if TYPE_CHECKING:
    from roquet.admin.support_bundle import BundleSources

app: Final = typer.Typer(
    name="support", help="What others need to help.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def _support() -> None:
    """Help others to help."""


@app.command()
def bundle(
    file: Annotated[Path, typer.Argument(help="The archive to write.")] = Path(
        "roquet-support.tar.gz"
    ),
    *,
    data: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A broker's data directory.")
    ] = None,
    config: Annotated[
        list[Path] | None, typer.Option("--config", "-c", help="A settings file.")
    ] = None,
    log: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="A log file.")] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Where a running server shows its metrics."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check the log, however large it is.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write settings, tables, logs, metrics, stacks and a store's check into one file.

    Every option may be given several times. Secrets, users and message bodies are left out.
    """
    from roquet.admin.support_bundle import BundleSources, pack
    from roquet.net.clock import SystemClock
    from roquet.store.filesystem.private_files import open_private

    runtime.log_to_stderr(verbose=False)
    sources = BundleSources(
        data=data or (), configs=config or (), logs=log or (), metrics=metrics or (),
        environ=dict(os.environ), checks_all=check,
    )  # fmt: skip
    found: dict[str, bytes] = {}
    runtime.run(_collect(sources, found))
    packed = pack(found, SystemClock().now_ms() // 1000)
    with open(file, "wb", opener=open_private) as archive:
        archive.write(packed)
    faults = found["faults.txt"].decode().splitlines()
    if json:
        facts = {"file": str(file), "bytes": len(packed), "files": sorted(found), "faults": faults}
        output.echo_json([facts])
        return
    for fault in faults:
        output.echo(f"left out: {fault}", err=True)
    output.echo(f"{file}: {output.quantity(len(found), 'file')}, {size_text(len(packed))}")


async def _collect(sources: "BundleSources", found: dict[str, bytes]) -> None:
    from roquet.admin.support_bundle import collect
    from roquet.net.clock import SystemClock

    found |= await collect(sources, SystemClock())
