"""roquet health: asks a server's health page, for scripts, containers and supervisors."""

from http import HTTPStatus
from typing import Final

from roquet.cli.command_options import argument, option
from roquet.cli.operator_command import Result
from roquet.metrics.exporter_settings import EXPORTER_PORT
from roquet.model.errors import RoquetError, UsageError
from roquet.net.address import split_address
from roquet.net.clock import SystemClock
from roquet.observe.health import LIVE_PATH, READY_PATH
from roquet.observe.page_client import read_response

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
    *,
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
        return [str(error)]
    if response.status == HTTPStatus.OK:
        return []
    return response.text.splitlines() or [f"status {response.status}"]
