"""Problems of a cluster, in sentences with the page that shows more."""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from roquet.admin.brokers import BrokerStatus
from roquet.admin.group_info import GroupInfo
from roquet.dashboard.sampling.sampler import ClusterSample
from roquet.model.printable_text import quantity

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
    found = [
        *(
            Problem(text=f"the newest sample is not whole: {text}", path="/brokers")
            for text in sample.problems
        ),
        *(
            Problem(text=f"name server {address} does not answer: {error}", path="/brokers")
            for address, error in name_servers.items()
        ),
        *(problem for broker in sample.brokers for problem in _of_broker(broker)),
        *(Problem(text=text, path="/brokers") for text in sample.replica_problems),
        *(problem for group in sample.groups.values() for problem in _of_group(group)),
    ]
    if len(found) > LISTED_MAX:
        left = quantity(len(found) - LISTED_MAX, "more problem")
        return [*found[:LISTED_MAX], Problem(text=f"and {left}", path="/groups?state=problems")]
    return found


def disk_share(broker: BrokerStatus) -> float | None:
    """Share of its disk that is in use, from 0 to 1; None where a broker does not say."""
    return number_of(broker.info.get("commitLogDiskRatio", ""))


def number_of(text: str) -> float | None:
    """The number in a text of a broker; None for another text, and for one below 0."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _of_broker(broker: BrokerStatus) -> Iterator[Problem]:
    name = f"{broker.broker}#{broker.broker_id}"
    path = f"/brokers/{quote(broker.broker, safe='')}"
    if broker.fault is not None:
        yield Problem(text=f"{name} does not answer: {broker.fault}", path=path)
        return
    share = disk_share(broker)
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
