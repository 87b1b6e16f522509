"""Jobs: how far archives are, and which retention will overtake."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.dashboard.dashboard import Dashboard
from roquet.dashboard.facts.charts import Chart, chart
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import dashboard_of
from roquet.dashboard.sampling.jobs import JobFacts, read_jobs

CHARTS_MAX = 8
"""Jobs whose lag is drawn over time, those with an alert first."""


async def overview(request: Request) -> Response:
    """The tables that the dashboard was started with."""
    dashboard = dashboard_of(request)
    tables, source, sampler = dashboard.settings.tables, dashboard.job_source, dashboard.jobs
    facts = sampler.latest if sampler is not None else None
    if facts is None:
        facts = JobFacts(tables=tables, jobs=())
        if source is not None and tables:
            facts = await read_jobs(source, tables)
    return page(
        request,
        "jobs.html",
        facts=facts,
        can_read=source is not None,
        only_html={"charts": _charts(dashboard, facts)},
    )


def _charts(dashboard: Dashboard, facts: JobFacts) -> list[tuple[str, Chart]]:
    """The lag of each job over the last hour, with its title."""
    if dashboard.jobs is None:
        return []
    drawn = []
    for row in facts.jobs[:CHARTS_MAX]:
        history = dashboard.jobs.history(row)
        found = chart(history.times, {"lag": history.lags}, unit="number")
        if found is not None:
            drawn.append((f"{row.topic} to {row.table}: lag", found))
    return drawn


ROUTES = [Route("/jobs", overview)]
