"""Jobs: how far archives are, and which retention will overtake."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.client.connection.threads import run_in_thread
from roquet.dashboard.dashboard import JobRow, JobSource
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import dashboard_of
from roquet.model.errors import RoquetError

READ_TIMEOUT_S: Final = 8.0
"""Time in which the notes of all tables are read; an object store may be far away."""


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The tables that the dashboard was started with."""

    tables: Sequence[str]
    jobs: Sequence[JobRow]
    unfilled: Sequence[str] = ()
    """Tables that no job has written notes of."""
    problems: Sequence[str] = ()
    """Tables whose notes cannot be read, with the reason."""


async def read_jobs(source: JobSource, tables: Sequence[str]) -> JobFacts:
    """The jobs of some tables; each is read in a thread, all at a time."""

    async def read(table: str) -> Sequence[JobRow] | str:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                return await run_in_thread(partial(source, table), "roquet-jobs")
        except TimeoutError:
            return f"{table}: not read within {READ_TIMEOUT_S:.0f} s"
        except (RoquetError, OSError, ImportError) as error:
            return f"{table}: {error}"

    outcomes = await asyncio.gather(*map(read, tables))
    rows = [row for outcome in outcomes if not isinstance(outcome, str) for row in outcome]
    return JobFacts(
        tables=tables,
        jobs=sorted(rows, key=lambda row: (not row.alert, row.table, row.topic)),
        unfilled=[table for table, rows in zip(tables, outcomes, strict=True) if not rows],
        problems=[outcome for outcome in outcomes if isinstance(outcome, str)],
    )


async def overview(request: Request) -> Response:
    """The tables that the dashboard was started with."""
    dashboard = dashboard_of(request)
    tables, source = dashboard.settings.tables, dashboard.job_source
    facts = JobFacts(tables=tables, jobs=())
    if source is not None and tables:
        facts = await read_jobs(source, tables)
    return page(request, "jobs.html", facts=facts, can_read=source is not None)


ROUTES = [Route("/jobs", overview)]
