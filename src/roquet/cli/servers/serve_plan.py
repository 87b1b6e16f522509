"""Serve plan: the brokers of `roquet serve`, their roles and their ports.

broker-a   0  10911      broker-b   0  10921      …  10 apart
broker-a   1  11911      broker-b   1  11921      …  1,000 above their master
"""

import string
from typing import Final

import msgspec

from roquet.cli.terminal import output
from roquet.model.errors import UsageError
from roquet.model.topic import MASTER_ID
from roquet.net.address import PORT_MAX
from roquet.rules.replication.acknowledgement import BrokerRole

BROKERS_MAX: Final = len(string.ascii_lowercase)
"""Brokers of one machine: each has a letter, and more brokers than cores are of no use."""

PORT_STEP: Final = 10
"""Between the ports of two brokers: each also listens on the port above its own, for replicas, and
may listen on the port two below it."""

REPLICAS_MAX: Final = 8
"""Replicas of one broker: the ports of more would leave no room below 65,536."""

REPLICA_PORT_STEP: Final = 1_000
"""Between the ports of a master and of its first replica, and so on: more than all masters take, so
that the ports of those that run stay when brokers or replicas are added."""

IN_SYNC: Final = 2
"""Logs that hold a message before its sender is answered, where there are replicas: a message that
was acknowledged survives the loss of one directory."""


class BrokerProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of `roquet serve`: a master, or a replica of one."""

    broker: str
    """Name that it shares with its master or its replicas."""
    broker_id: int = MASTER_ID
    port: int
    role: BrokerRole | None = None
    """None: its settings say it, or its controllers."""
    in_sync: int = 1
    """Logs that a message needs before its sender is answered."""
    controllers: tuple[str, ...] = ()
    """Addresses of the controllers that give it its role and id; empty: these are fixed."""

    @property
    def name(self) -> str:
        """Name of the process, its directory and its log: broker-a, broker-a-1."""
        is_master = self.broker_id == MASTER_ID
        return self.broker if is_master else f"{self.broker}-{self.broker_id}"

    @property
    def environ(self) -> dict[str, str]:
        """Settings as environment variables, which win over any file."""
        if self.controllers:
            return {
                "ROQUET_CONTROLLER_MODE": "true",
                "ROQUET_CONTROLLERS": ";".join(self.controllers),
                "ROQUET_MIN_IN_SYNC_REPLICAS": str(self.in_sync),
                "ROQUET_IN_SYNC_REPLICAS": str(self.in_sync),
                "ROQUET_HA_PORT": str(self.port + 1),
            }
        if self.role is None:
            return {}
        return {
            "ROQUET_BROKER_ROLE": self.role,
            "ROQUET_BROKER_ID": str(self.broker_id),
            "ROQUET_IN_SYNC_REPLICAS": str(self.in_sync),
            "ROQUET_HA_PORT": str(self.port + 1),
        }


def broker_processes(
    brokers: int, replicas: int, in_sync: int | None, port: int, controllers: tuple[str, ...] = ()
) -> list[BrokerProcess]:
    """The brokers to start, each master followed by its replicas. Raises UsageError."""
    highest = port + PORT_STEP * (brokers - 1) + REPLICA_PORT_STEP * replicas + 1
    if highest > PORT_MAX:
        named = output.quantity(brokers, "broker")
        named += f" with {output.quantity(replicas, 'replica')} each" if replicas else ""
        raise UsageError(
            f"--port {port}: {named}: ports up to {highest} are needed, beyond {PORT_MAX}"
        )
    if in_sync is not None and not replicas:
        raise UsageError(f"--in-sync {in_sync}: there are no replicas; add --replicas")
    needed = (in_sync or IN_SYNC) if replicas else 1
    if needed > replicas + 1:
        raise UsageError(
            f"--in-sync {needed}: with {output.quantity(replicas, 'replica')} there are "
            f"{replicas + 1} logs"
        )
    return [
        BrokerProcess(
            broker=f"broker-{letter}",
            broker_id=broker_id,
            port=port + PORT_STEP * index + REPLICA_PORT_STEP * broker_id,
            role=_role(broker_id, needed) if replicas and not controllers else None,
            in_sync=needed,
            controllers=controllers,
        )
        for index, letter in enumerate(string.ascii_lowercase[:brokers])
        for broker_id in range(replicas + 1)
    ]


def _role(broker_id: int, needed: int) -> BrokerRole:
    if broker_id != MASTER_ID:
        return BrokerRole.SLAVE
    return BrokerRole.ASYNC_MASTER if needed == 1 else BrokerRole.SYNC_MASTER
