"""Brokers: which there are, how they do, and their settings, read and changed while they run."""

from collections.abc import Mapping

import msgspec

from roquet.admin.client import AdminClient
from roquet.model.errors import UsageError
from roquet.model.settings import suggest
from roquet.wire.calls.admin.settings import GetSettings, UpdateSettings
from roquet.wire.calls.admin.stats import GetRuntimeInfo
from roquet.wire.calls.bodies import KVTable
from roquet.wire.fastjson import codec
from roquet.wire.properties_file import escape_properties, read_unescaped


class BrokerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of a cluster, and how it does."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    info: dict[str, str]
    """What it says of itself, in Java's words; nothing when it does not answer."""
    fault: str | None = None

    @property
    def version(self) -> str:
        """The RocketMQ version whose protocol it speaks, which genuine clients look at."""
        return self.info.get("brokerVersionDesc", "?")

    @property
    def software(self) -> str:
        """Roquet and its version, or RocketMQ and the one that it says it is."""
        ours = self.info.get("roquetVersion")
        apache = self.version.removeprefix("V").replace("_", ".")
        return f"Roquet {ours}" if ours else f"RocketMQ {apache}" if self.info else "?"

    @property
    def puts_per_s(self) -> str:
        """Messages stored a second: of the last 10 s, minute and ten minutes."""
        return self.info.get("putTps", "?")

    @property
    def gets_per_s(self) -> str:
        """Messages handed out a second, likewise."""
        return self.info.get("getTransferredTps", "?")

    @property
    def set_aside(self) -> int:
        """Messages that it keeps because a service of it cannot handle them."""
        text = self.info.get("setAsideTotal", "0")
        return int(text) if text.isascii() and text.isdecimal() else 0


async def statuses(admin: AdminClient) -> list[BrokerStatus]:
    """All brokers of all clusters, followers included."""
    info = await admin.cluster()
    where = {
        (data.broker_name, broker_id): (data.cluster, address)
        for data in info.broker_addr_table.values()
        for broker_id, address in data.broker_addrs.items()
    }
    asked = {f"{name}#{number}": address for (name, number), (_, address) in where.items()}
    answers, failed = await admin.ask_each(asked, GetRuntimeInfo())
    found = []
    for (name, number), (cluster, address) in sorted(where.items()):
        who = f"{name}#{number}"
        told = codec.loads(answers[who].body, KVTable).table if who in answers else {}
        fault = str(failed[who]) if who in failed else None
        found.append(
            BrokerStatus(
                cluster=cluster,
                broker=name,
                broker_id=number,
                address=address,
                info=dict(sorted(told.items())),
                fault=fault,
            )
        )
    return found


async def settings(admin: AdminClient, broker: str) -> dict[str, str]:
    """All settings of a broker, in Java's words, sorted."""
    reply = await admin.ask(await _address(admin, broker), GetSettings())
    return dict(sorted(read_unescaped(reply.body.decode("utf-8", "replace")).items()))


async def configure(admin: AdminClient, broker: str, changes: Mapping[str, str]) -> None:
    """Change settings of a running broker; CallRefused says why when it does not take them."""
    body = escape_properties(changes).encode()
    await admin.ask(await _address(admin, broker), UpdateSettings(body=body))


async def _address(admin: AdminClient, broker: str) -> str:
    known = await admin.brokers()
    if broker not in known:
        raise UsageError(f"there is no broker {broker!r}{suggest(broker, list(known))}")
    return known[broker]
