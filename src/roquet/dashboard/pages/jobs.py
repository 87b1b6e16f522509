"""Jobs: how far archives are, and which retention will overtake."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.dashboard.facts.jobs import JobFacts, read_jobs
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import dashboard_of


async def overview(request: Request) -> Response:
    """The tables that the dashboard was started with."""
    dashboard = dashboard_of(request)
    tables, source = dashboard.settings.tables, dashboard.job_source
    facts = JobFacts(tables=tables, jobs=())
    if source is not None and tables:
        facts = await read_jobs(source, tables)
    return page(request, "jobs.html", facts=facts, can_read=source is not None)


ROUTES = [Route("/jobs", overview)]
