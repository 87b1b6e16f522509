"""Health pages: whether the event loop turns, whether a server is ready, and its stacks.

/healthz   200 ok                  a supervisor restarts a process that does not answer
/readyz    200 ready               a load balancer, or a rolling upgrade, goes on
           503 a reason a line
/stacks    where each thread and task is; for clients on this machine, since it names files
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from roquet.observe.http_server import TEXT, HttpPage, PageUnavailable
from roquet.observe.stacks import dump_stacks

LIVE_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"
STACKS_PATH: Final = "/stacks"

UnreadyReasons = Callable[[], Sequence[str]]
"""Why a server cannot do its work now, each reason a line; none: it is ready."""


def always_ready() -> Sequence[str]:
    """No reasons: a server that is ready once it listens."""
    return ()


def health_pages(reasons: UnreadyReasons) -> Mapping[str, HttpPage]:
    """All pages by path."""
    return {
        LIVE_PATH: HttpPage(TEXT, _live),
        READY_PATH: HttpPage(TEXT, partial(_ready, reasons)),
        STACKS_PATH: HttpPage(TEXT, _stacks, is_local=True),
    }


async def _live() -> AsyncIterator[bytes]:
    yield b"ok\n"


async def _ready(reasons: UnreadyReasons) -> AsyncIterator[bytes]:
    if found := reasons():
        raise PageUnavailable("\n".join(found))
    yield b"ready\n"


async def _stacks() -> AsyncIterator[bytes]:
    yield dump_stacks().encode()
