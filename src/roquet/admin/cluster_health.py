"""Cluster health: what is wrong with a cluster, in sentences, from what its servers say.

    name servers   each answers, and all know the same brokers
    brokers        as many as expected; each serves, takes messages and has room on its disk
    replicas       each name has a master, and replicas are in sync (`admin.replicas`)
    routes         the name servers know each topic of a broker

Groups, dead letters and messages that were set aside are work for someone, no fault of the cluster.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

import msgspec

from roquet.admin import brokers, replicas
from roquet.admin.brokers import BrokerStatus
from roquet.admin.client import AdminClient
from roquet.admin.replicas import ReplicaStatus
from roquet.model.flags import Permission
from roquet.model.printable_text import quantity
from roquet.model.route import ClusterInfo
from roquet.model.topic import TopicTable
from roquet.wire.calls.admin.settings import GetSettings
from roquet.wire.calls.admin.topic import GetTopics
from roquet.wire.calls.route import GetClusterInfo
from roquet.wire.fastjson import codec

DISK_FULL_FROM: Final = 0.85
"""Share of a broker's disk in use; Apache's brokers delete files early from here on."""

PERMISSION: Final = "brokerPermission"

NAMED_MAX: Final = 3
"""Topics without a route that are named; more are counted."""


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Answers of a cluster's servers."""

    name_servers: Mapping[str, ClusterInfo]
    """The brokers that each name server knows, by its address."""
    silent_name_servers: Mapping[str, str] = {}
    """Errors by address."""
    brokers: Sequence[BrokerStatus] = ()
    replicas: Sequence[ReplicaStatus] = ()
    permissions: Mapping[str, str] = {}
    """The setting brokerPermission of masters by broker name."""
    topics: Mapping[str, Set[str]] = {}
    """Topics of masters by broker name."""
    routed_topics: Set[str] = frozenset()
    """Topics that name servers know."""

    @property
    def masters(self) -> int:
        """Number of broker names that name servers know a master of."""
        tables = (info.broker_addr_table for info in self.name_servers.values())
        return len({name for table in tables for name, data in table.items() if data.leader})


async def ask(admin: AdminClient) -> ClusterFacts:
    """Ask all name servers and brokers. Raises RoquetError when the name servers go meanwhile."""
    replies, silent = await admin.ask_name_servers(GetClusterInfo())
    facts = ClusterFacts(
        name_servers={at: codec.loads(reply.body, ClusterInfo) for at, reply in replies.items()},
        silent_name_servers={address: str(error) for address, error in silent.items()},
    )
    if not any(info.broker_addr_table for info in facts.name_servers.values()):
        return facts
    leaders = await admin.leaders()
    statuses, shown, (settings, _), (tables, _) = await asyncio.gather(
        brokers.statuses(admin),
        replicas.statuses(admin),
        admin.ask_each(leaders, GetSettings()),
        admin.ask_each(leaders, GetTopics()),
    )
    return msgspec.structs.replace(
        facts,
        brokers=statuses,
        replicas=shown,
        permissions={
            name: brokers.decoded_settings(reply).get(PERMISSION, "")
            for name, reply in settings.items()
        },
        topics={
            name: codec.loads(reply.body, TopicTable).topic_config_table.keys()
            for name, reply in tables.items()
        },
        routed_topics=frozenset(await admin.topics()),  # behind the brokers: topics may be new
    )


def problems(facts: ClusterFacts, expected: int = 0) -> list[str]:
    """Sentences that say what is wrong; `expected` is the least number of masters."""
    return [
        *_name_server_problems(facts),
        *_number_of_brokers(facts, expected),
        *(line for status in facts.brokers for line in status_problems(status)),
        *_refused_messages(facts.permissions),
        *replicas.problems(facts.replicas),
        *_topics_without_route(facts),
    ]


def status_problems(status: BrokerStatus) -> Iterator[str]:
    """Problems that a broker's own statistics show."""
    name = f"{status.broker}#{status.broker_id}"
    share = status.number("commitLogDiskRatio")
    if share is not None and share >= DISK_FULL_FROM:
        yield f"{name}: {share:.0%} of its disk is in use"
    if status.info.get("brokerActive") == "false":
        yield f"{name} is not active: it serves nobody"


def _name_server_problems(facts: ClusterFacts) -> Iterator[str]:
    for address, error in facts.silent_name_servers.items():
        yield f"name server {address} does not answer: {error}"
    known = {address: _addresses(info) for address, info in facts.name_servers.items()}
    every = {broker for addresses in known.values() for broker in addresses}
    for broker in sorted(every):
        lacking = [address for address, addresses in known.items() if broker not in addresses]
        if lacking:
            yield f"{broker} is not registered at name server {', '.join(lacking)}"


def _addresses(info: ClusterInfo) -> set[str]:
    """Brokers that a name server knows, as "name#id at host:port"."""
    return {
        f"{name}#{number} at {address}"
        for name, data in info.broker_addr_table.items()
        for number, address in data.broker_addrs.items()
    }


def _number_of_brokers(facts: ClusterFacts, expected: int) -> Iterator[str]:
    if facts.masters < max(expected, 1) and facts.name_servers:
        there = quantity(facts.masters, "broker") if facts.masters else "no broker"
        wanted = f", and there have to be {expected}" if expected > 1 else ""
        yield f"{there} with a master{wanted}"


def _refused_messages(permissions: Mapping[str, str]) -> Iterator[str]:
    for name, text in permissions.items():
        if text.isdecimal() and not int(text) & Permission.WRITE:
            yield f"{name} takes no messages: {PERMISSION} is {text}, as while it is drained"


def _topics_without_route(facts: ClusterFacts) -> Iterator[str]:
    for broker, topics in facts.topics.items():
        if lost := sorted(topics - facts.routed_topics):
            more = f" and {len(lost) - NAMED_MAX} more" if len(lost) > NAMED_MAX else ""
            names = f"{', '.join(lost[:NAMED_MAX])}{more}"
            yield f"no route to {names}: {broker} has it, and the name servers do not know that"
