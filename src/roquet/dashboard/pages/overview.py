"""Overview: rates, lag, and problems in words."""

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.dashboard.facts.drawings import curve
from roquet.dashboard.facts.problems import cluster_problems
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import admin_of, dashboard_of
from roquet.wire.calls.route import GetClusterInfo

FIRST_SAMPLE_MS = 3_000
"""Time for which a page waits for the first sample."""

TOP = 8
"""Groups and topics in the short lists."""

CURVE_WIDTH = 260
CURVE_HEIGHT = 44


async def overview(request: Request) -> Response:
    """The first page; all but the name servers is of the newest sample."""
    sampler = dashboard_of(request).sampler
    sample = await sampler.wait(FIRST_SAMPLE_MS)
    if sample is None:
        return page(request, "overview_empty.html")
    _, silent = await admin_of(request).ask_name_servers(GetClusterInfo())
    rates, groups, topics = sampler.rates, sample.groups.values(), sample.topics.values()
    shape = {"width": CURVE_WIDTH, "height": CURVE_HEIGHT}
    return page(
        request,
        "overview.html",
        sampled_ms=sample.at_ms,
        brokers=len(sample.brokers),
        brokers_silent=sum(broker.fault is not None for broker in sample.brokers),
        topics=len(topics),
        groups=len(groups),
        messages=_known_sum(topic.messages for topic in topics),
        in_per_s=rates.ins[-1] if rates.ins else None,
        out_per_s=rates.outs[-1] if rates.outs else None,
        lag=_known_sum(group.lag for group in groups),
        dead_letters=_known_sum(group.dead_letters for group in groups),
        problems=cluster_problems(sample, {name: str(error) for name, error in silent.items()}),
        lagging=sorted((g for g in groups if g.lag), key=lambda group: -(group.lag or 0))[:TOP],
        busiest=sorted(
            (topic for topic in topics if topic.in_per_s), key=lambda one: -(one.in_per_s or 0)
        )[:TOP],
        only_html={
            "in_curve": curve(rates.ins, **shape),
            "out_curve": curve(rates.outs, **shape),
            "lag_curve": curve(rates.lags, **shape),
            "since_ms": rates.times[0] if rates.times else None,
        },
    )


def _known_sum(counts: Iterable[int | None]) -> int | None:
    """The sum of what is known; None where nothing is, of one part at least."""
    found = [*counts]
    known = [count for count in found if count is not None]
    return sum(known) if known or not found else None


ROUTES = [Route("/", overview)]
