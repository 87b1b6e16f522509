"""Overview: problems in words, rates and lag over time, brokers, dead letters, last changes."""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.admin.brokers import BrokerStatus
from roquet.admin.cluster_health import status_problems
from roquet.admin.group_info import GroupInfo
from roquet.dashboard.dashboard import Dashboard
from roquet.dashboard.facts.charts import chart
from roquet.dashboard.facts.cluster_overview import (
    CAUGHT_UP,
    broker_lines,
    letter_lines,
    letters_left,
    recent_changes,
    visible_jobs,
    visible_sample,
)
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import admin_of, dashboard_of, visitor_of
from roquet.dashboard.sampling.history import ClusterHistory, growth
from roquet.dashboard.sampling.sampler import ClusterSample, cluster_totals, known_sum
from roquet.dashboard.visitor_rights import may_see_cluster
from roquet.model.printable_text import quantity
from roquet.wire.calls.route import GetClusterInfo

LISTED_MAX: Final = 30
"""Sentences that a page shows; more are counted."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of a cluster."""

    text: str
    path: str
    """Page of the dashboard that shows more."""


def cluster_problems(sample: ClusterSample, name_servers: Mapping[str, str]) -> list[Problem]:
    """The problems in a sample, brokers first.

    `name_servers` are the errors of those that do not answer, by address.
    """
    texts = [f"the newest sample is not whole: {text}" for text in sample.problems]
    texts += [f"name server {name} does not answer: {e}" for name, e in name_servers.items()]
    found = [
        *(Problem(text=text, path="/brokers") for text in texts),
        *(problem for broker in sample.brokers for problem in _of_broker(broker)),
        *(Problem(text=text, path="/brokers") for text in sample.replica_problems),
        *(problem for group in sample.groups.values() for problem in _of_group(group)),
    ]
    if len(found) > LISTED_MAX:
        left = quantity(len(found) - LISTED_MAX, "more problem")
        return [*found[:LISTED_MAX], Problem(text=f"and {left}", path="/groups?state=problems")]
    return found


def _of_broker(broker: BrokerStatus) -> Iterator[Problem]:
    name = f"{broker.broker}#{broker.broker_id}"
    path = f"/brokers/{quote(broker.broker, safe='')}"
    if broker.fault is not None:
        yield Problem(text=f"{name} does not answer: {broker.fault}", path=path)
        return
    for text in status_problems(broker):
        yield Problem(text=text, path=path)
    if broker.set_aside:
        messages = quantity(broker.set_aside, "message")
        yield Problem(text=f"{name} has set aside {messages} that it cannot handle", path=path)


def _of_group(group: GroupInfo) -> Iterator[Problem]:
    path = f"/groups/{quote(group.name, safe='')}"
    if group.members == [] and group.lag:
        messages = quantity(group.lag, "message")
        yield Problem(text=f"{group.name}: {messages} to handle, and no member", path=path)
    if letters := letters_left(group):
        count = quantity(letters, "dead letter")
        text = f"{group.name}: {count} not sent again"
        yield Problem(text=text, path=f"/dead-letters/{quote(group.name, safe='')}")
    if group.problems:
        more = f" (and {len(group.problems) - 1} more)" if len(group.problems) > 1 else ""
        yield Problem(text=f"{group.name}: {group.problems[0]}{more}", path=path)


FIRST_SAMPLE_MS = 3_000
"""Time for which a page waits for the first sample."""

TOP = 5
"""Rows of a short list."""

BROKERS_MAX = 6
"""Brokers that are listed, those that need a look first."""


async def overview(request: Request) -> Response:
    """The first page; all but the name servers is of the newest sample."""
    dashboard, user = dashboard_of(request), visitor_of(request).user
    newest = await dashboard.sampler.wait(FIRST_SAMPLE_MS)
    if newest is None:
        return page(request, "overview_empty.html")
    sees_cluster = may_see_cluster(newest.access, user)
    sample = visible_sample(newest, user)
    silent = await _silent_name_servers(request) if sees_cluster else {}
    groups, topics = sample.groups.values(), sample.topics.values()
    lines = broker_lines(sample.brokers, sample.replicas)
    letters = letter_lines(groups, dashboard.sampler.history)
    return page(
        request,
        "overview.html",
        sees_cluster=sees_cluster,
        **_figures(dashboard, sample, sees_cluster=sees_cluster),
        problems=cluster_problems(sample, silent),
        broker_lines=lines[:BROKERS_MAX],
        brokers_left=max(len(lines) - BROKERS_MAX, 0),
        lagging=sorted((g for g in groups if g.lag), key=lambda group: -(group.lag or 0))[:TOP],
        busiest=sorted(
            (topic for topic in topics if topic.in_per_s), key=lambda one: -(one.in_per_s or 0)
        )[:TOP],
        letters=letters[:TOP],
        letters_left=max(len(letters) - TOP, 0),
        changes=recent_changes(
            [one for one in dashboard.audit.entries if sees_cluster or one.user == user],
            dashboard.sampler.events if sees_cluster else (),
            TOP,
        ),
        **_job_facts(dashboard, sample, user),
        only_html={
            **_charts(dashboard.sampler.totals, shown=sees_cluster),
            "namesrv": dashboard.settings.name_servers,
        },
    )


async def _silent_name_servers(request: Request) -> dict[str, str]:
    _, silent = await admin_of(request).ask_name_servers(GetClusterInfo())
    return {name: str(error) for name, error in silent.items()}


def _figures(dashboard: Dashboard, sample: ClusterSample, *, sees_cluster: bool) -> dict[str, Any]:
    """The numbers in a row; rates are None where the visitor sees a part of the cluster."""
    totals = cluster_totals(sample)
    groups, topics = sample.groups.values(), sample.topics.values()
    return {
        "sampled_ms": sample.at_ms,
        "brokers": len(sample.brokers),
        "brokers_silent": sum(broker.fault is not None for broker in sample.brokers),
        "topics": len(topics),
        "groups": len(groups),
        "messages": known_sum(topic.messages for topic in topics),
        "in_per_s": totals.in_per_s if sees_cluster else None,
        "out_per_s": totals.out_per_s if sees_cluster else None,
        "lag": known_sum(group.lag for group in groups),
        "dead_letters": known_sum(group.dead_letters for group in groups),
        "dead_letters_grown": int(
            sum(growth(dashboard.sampler.history(group.name).letters) for group in groups)
        ),
    }


def _job_facts(dashboard: Dashboard, sample: ClusterSample, user: str | None) -> dict[str, Any]:
    facts = visible_jobs(dashboard.jobs.latest if dashboard.jobs else None, sample, user)
    behind = [row for row in facts.jobs if row.alert or row.state != CAUGHT_UP]
    return {
        "jobs": len(facts.jobs),
        "jobs_behind": behind[:TOP],
        "jobs_left": max(len(behind) - TOP, 0),
        "tables_unread": len(facts.problems),
    }


def _charts(totals: ClusterHistory, *, shown: bool) -> dict[str, Any]:
    if not shown:
        return {"rate_chart": None, "lag_chart": None}
    rates = {"in": totals.ins, "out": totals.outs}
    return {
        "rate_chart": chart(totals.times, rates, unit="rate"),
        "lag_chart": chart(totals.times, {"lag": totals.lags}, unit="number"),
    }


ROUTES = [Route("/", overview)]
