"""roquet health, support bundle: asks a server how it is; collects what explains its trouble."""

import os
from http import HTTPStatus
from pathlib import Path
from typing import Final

from roquet.admin.support_bundle import BundleSources, collect, pack
from roquet.cli.command_options import argument, option
from roquet.cli.operator_command import CommandGroup, Result
from roquet.cli.process import runtime
from roquet.cli.terminal import output
from roquet.metrics.exporter_settings import EXPORTER_PORT
from roquet.model.errors import RoquetError, UsageError
from roquet.model.printable_text import size_text
from roquet.net.address import split_address
from roquet.net.clock import SystemClock
from roquet.observe.health import LIVE_PATH, READY_PATH
from roquet.observe.page_client import read_response
from roquet.store.filesystem.private_files import open_private

TIMEOUT_MS: Final = 5_000
"""Ms for one answer: a server that needs longer is not healthy."""

POLL_MS: Final = 500
"""Ms between two questions with `--wait`."""


async def health(
    address: str = argument(
        "Where the server shows its metrics.",
        default=f"127.0.0.1:{EXPORTER_PORT}",
        metavar="HOST:PORT",
    ),
    live: bool = option("Only whether it answers, not whether it is ready."),
    wait: int = option("How long to wait until it is ready.", default=0, min=0, metavar="SECONDS"),
) -> Result:
    """Ask whether a server with --metrics is ready. Exit code 1 and the reasons when it is not."""
    try:
        split_address(address)
    except RoquetError as error:
        raise UsageError(f"{address!r}: HOST:PORT is wanted") from error
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + wait * 1_000
    while reasons := await _reasons(address, LIVE_PATH if live else READY_PATH):
        if clock.monotonic_ms() >= deadline_ms:
            break
        await clock.sleep(POLL_MS)
    return Result(
        json=[{"address": address, "healthy": not reasons, "reasons": reasons}],
        text=[f"{address}: {line}" for line in reasons or ["ok" if live else "ready"]],
        is_failed=bool(reasons),
    )


async def _reasons(address: str, path: str) -> list[str]:
    try:
        response = await read_response(address, path, timeout_ms=TIMEOUT_MS)
    except RoquetError as error:
        return [f"{error}; is a server with --metrics running there?"]
    if response.status == HTTPStatus.OK:
        return []
    return response.text.splitlines() or [f"status {response.status}"]


app: Final = CommandGroup("support", "What others need to help.")


@app.command()
def bundle(
    file: Path = argument("The archive to write.", default=Path("roquet-support.tar.gz")),
    data: list[Path] | None = option("A broker's data directory.", metavar="DIR"),
    config: list[Path] | None = option("A settings file.", "-c"),
    log: list[Path] | None = option("A log file.", metavar="FILE"),
    metrics: list[str] | None = option(
        "Where a running server shows its metrics.", metavar="HOST:PORT"
    ),
    check: bool = option("Check the log, however large it is."),
) -> Result:
    """Write settings, tables, logs, metrics, stacks and a store's check into one file.

    Every option may be given several times. Secrets, users and message bodies are left out.
    """
    sources = BundleSources(
        data=data or (), configs=config or (), logs=log or (), metrics=metrics or (),
        environ=dict(os.environ), checks_all=check,
    )  # fmt: skip
    clock = SystemClock()
    found = runtime.run(collect(sources, clock))
    packed = pack(found, clock.now_ms() // 1000)
    with open(file, "wb", opener=open_private) as archive:
        archive.write(packed)
    faults = found["faults.txt"].decode().splitlines()
    facts = {"file": str(file), "bytes": len(packed), "files": sorted(found), "faults": faults}
    return Result(
        json=[facts],
        text=[f"{file}: {output.quantity(len(found), 'file')}, {size_text(len(packed))}"],
        hints=[f"left out: {fault}" for fault in faults],
    )
