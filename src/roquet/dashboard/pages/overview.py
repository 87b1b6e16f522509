"""Overview: rates, lag, and problems in words."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.admin.brokers import BrokerStatus
from roquet.admin.group_info import GroupInfo
from roquet.dashboard.facts.drawings import curve
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import admin_of, dashboard_of
from roquet.dashboard.sampling.sampler import ClusterSample
from roquet.model.printable_text import quantity
from roquet.wire.calls.route import GetClusterInfo

DISK_FULL_FROM: Final = 0.85
"""Share of a broker's disk in use; Apache's brokers delete files early from here on."""

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
    share = broker.number("commitLogDiskRatio")
    if share is not None and share >= DISK_FULL_FROM:
        yield Problem(text=f"{name}: {share:.0%} of its disk is in use", path=path)
    if broker.set_aside:
        messages = quantity(broker.set_aside, "message")
        yield Problem(text=f"{name} has set aside {messages} that it cannot handle", path=path)
    if broker.info.get("brokerActive") == "false":
        yield Problem(text=f"{name} is not active: it serves nobody", path=path)


def _of_group(group: GroupInfo) -> Iterator[Problem]:
    path = f"/groups/{quote(group.name, safe='')}"
    if group.members == [] and group.lag:
        messages = quantity(group.lag, "message")
        yield Problem(text=f"{group.name}: {messages} to handle, and no member", path=path)
    if letters := _not_resent(group):
        count = quantity(letters, "dead letter")
        text = f"{group.name}: {count} not sent again"
        yield Problem(text=text, path=f"/dead-letters/{quote(group.name, safe='')}")
    if group.problems:
        more = f" (and {len(group.problems) - 1} more)" if len(group.problems) > 1 else ""
        yield Problem(text=f"{group.name}: {group.problems[0]}{more}", path=path)


def _not_resent(group: GroupInfo) -> int | None:
    """Dead letters to look at: all of them where it is not known which were sent again."""
    known = group.dead_letters_not_resent
    return group.dead_letters if known is None else known


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
