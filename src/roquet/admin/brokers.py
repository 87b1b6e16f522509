"""Brokers: their status, and their settings, read and changed while they run."""

from collections.abc import Mapping
from typing import Final

import msgspec

from roquet.admin.client import AdminClient
from roquet.model.errors import CallRefused, NotFound, UsageError
from roquet.model.settings import suggest
from roquet.model.topic import MASTER_ID
from roquet.wire.call import Reply
from roquet.wire.calls.admin.settings import GetSettings, UpdateSettings
from roquet.wire.calls.admin.stats import GetRuntimeInfo
from roquet.wire.calls.bodies import KVTable
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.properties_file import escape_properties, read_unescaped

RESERVED: Final = "fileReservedTime"
"""The setting that says for how many hours a broker keeps messages."""

HOUR_S: Final = 3600


class BrokerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of a cluster and its runtime statistics."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    info: dict[str, str]
    """Statistics by RocketMQ's own keys; empty when it does not answer."""
    fault: str | None = None
    """The error of a broker that does not answer."""

    @property
    def version(self) -> str:
        """The RocketMQ version whose protocol it speaks; Apache's clients look at it."""
        return self.info.get("brokerVersionDesc", "?")

    @property
    def software(self) -> str:
        """Name and version: Roquet's own, or RocketMQ with the version that it reports."""
        ours = self.info.get("roquetVersion")
        apache = self.version.removeprefix("V").replace("_", ".")
        return f"Roquet {ours}" if ours else f"RocketMQ {apache}" if self.info else "?"

    @property
    def puts_per_s(self) -> str:
        """Messages stored per second: three rates, of the last 10 s, minute and ten minutes."""
        return self.info.get("putTps", "?")

    @property
    def gets_per_s(self) -> str:
        """Messages delivered per second: the same three rates."""
        return self.info.get("getTransferredTps", "?")

    @property
    def set_aside(self) -> int:
        """Number of messages set aside because one of its services cannot handle them."""
        text = self.info.get("setAsideTotal", "0")
        return int(text) if text.isascii() and text.isdecimal() else 0

    def number(self, key: str) -> float | None:
        """A statistic that is a number; None for another text, without it, and below 0."""
        try:
            value = float(self.info.get(key, ""))
        except ValueError:
            return None
        return value if 0 <= value < float("inf") else None


async def statuses(admin: AdminClient) -> list[BrokerStatus]:
    """Status of every broker of every cluster, followers included."""
    cluster_info = await admin.cluster()
    addresses = {
        (data.broker_name, broker_id): (data.cluster, address)
        for data in cluster_info.broker_addr_table.values()
        for broker_id, address in data.broker_addrs.items()
    }
    calls = {f"{name}#{number}": address for (name, number), (_, address) in addresses.items()}
    answers, failed = await admin.ask_each(calls, GetRuntimeInfo())
    result = []
    for (name, number), (cluster, address) in sorted(addresses.items()):
        key = f"{name}#{number}"
        info = codec.loads(answers[key].body, KVTable).table if key in answers else {}
        result.append(
            BrokerStatus(
                cluster=cluster,
                broker=name,
                broker_id=number,
                address=address,
                info=dict(sorted(info.items())),
                fault=str(failed[key]) if key in failed else None,
            )
        )
    return result


async def settings(admin: AdminClient, broker: str) -> dict[str, str]:
    """All settings of a broker by RocketMQ's own keys, sorted.

    `broker` is a name, for its leader, or a name and an id: `broker-a#1`.
    """
    return decoded_settings(await admin.ask(await address_of(admin, broker), GetSettings()))


def decoded_settings(reply: Reply) -> dict[str, str]:
    """The settings in a broker's answer, sorted."""
    return dict(sorted(read_unescaped(bytes(reply.body).decode("utf-8", "replace")).items()))


def retention_s(settings: Mapping[str, str]) -> float | None:
    """Seconds for which a broker with these settings keeps messages; None when it does not say.

    Less than an hour is reported as 0, and counts as not said.
    """
    hours = settings.get(RESERVED, "")
    return float(int(hours) * HOUR_S) if hours.isdecimal() and int(hours) else None


async def configure(admin: AdminClient, broker: str, changes: Mapping[str, str]) -> None:
    """Change settings of a running broker, named as for `settings`.

    Raises UsageError for a value that it does not take, and CallRefused when it refuses otherwise.
    """
    body = escape_properties(changes).encode()
    try:
        await admin.ask(await address_of(admin, broker), UpdateSettings(body=body))
    except CallRefused as error:
        if error.code == ResponseCode.INVALID_PARAMETER:
            raise UsageError(f"{broker} does not take that: {error.remark}") from error
        raise


async def address_of(admin: AdminClient, broker: str) -> str:
    """Address of a broker, named as for `settings`. Raises NotFound for an unknown one."""
    table = (await admin.cluster()).broker_addr_table
    addresses = {
        key: address
        for name, data in sorted(table.items())
        for broker_id, address in data.broker_addrs.items()
        for key in ((name,) if broker_id == MASTER_ID else ()) + (f"{name}#{broker_id}",)
    }
    if broker in table and broker not in addresses:
        ids = ", ".join(f"{broker}#{broker_id}" for broker_id in sorted(table[broker].broker_addrs))
        raise UsageError(f"the master of {broker!r} is away; its replicas are {ids}")
    if broker not in addresses:
        raise NotFound(f"there is no broker {broker!r}{suggest(broker, list(table))}")
    return addresses[broker]
