"""A controller that answers what a test says, and remembers what it was asked."""

from collections.abc import Callable
from typing import Any

from roquet.broker.replication.control.controller_client import ControllerClient, OwnBroker
from roquet.model.errors import CallRefused
from roquet.net.pool import ChannelPool
from roquet.net.router import Peer, Router
from roquet.net.server import Server
from roquet.testing.clock import this_loop
from roquet.wire.call import Call, Reply
from roquet.wire.calls import controller as calls
from roquet.wire.calls.route import BrokerHeartbeat, BrokerHeartbeatReply
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

MEMBER = OwnBroker(cluster="c", name="g", address="10.0.0.1:10911")

SERVED: tuple[type[Call[Any]], ...] = (
    calls.GetControllerMetadata,
    calls.GetNextBrokerId,
    calls.ApplyBrokerId,
    calls.RegisterWithController,
    calls.GetReplicaInfo,
    calls.ElectMaster,
    calls.AlterSyncStateSet,
    BrokerHeartbeat,
)


def set_body(*members: int, version: int = 1) -> bytes:
    return codec.dumps(
        calls.SyncStateSet(sync_state_set=list(members), sync_state_set_epoch=version)
    )


class ScriptedController:
    """Leads, unless a test says otherwise; nobody leads the group at first."""

    def __init__(self, host: str = "127.0.0.1", port: int = 9878) -> None:
        router = Router()
        self.host = host
        self.asked: list[Call[Any]] = []
        self.peers: list[Peer] = []
        self.leader: str | None = f"{host}:{port}"
        self.is_leader = True
        self.next_id = 1
        self.refusals: dict[type[Call[Any]], CallRefused] = {}
        self.replies: dict[type[Call[Any]], Callable[[Any], Reply]] = {
            calls.GetNextBrokerId: lambda _: calls.GetNextBrokerIdReply(next_broker_id=self.next_id)
        }
        for call in SERVED:
            router.add(call, self._serve)
        self.server = Server(router, host=host, port=port, clock=this_loop().clock)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.server.port}"

    def leads(
        self,
        master: int | None,
        epoch: int,
        *members: int,
        version: int = 1,
        address: str | None = None,
    ) -> None:
        """Say from now on who leads the group; its address is 10.0.0.<id>:10911 by default."""
        address = address or f"10.0.0.{master}:10911"
        self.replies[calls.GetReplicaInfo] = lambda _: calls.GetReplicaInfoReply(
            master_broker_id=master,
            master_address=None if master is None else address,
            master_epoch=epoch,
            body=set_body(
                *(members or () if master is None else members or (master,)), version=version
            ),
        )

    def grants(self, lease_ms: int | None) -> None:
        """Grant a lease with every heartbeat from now on; None answers as Apache's controller."""
        self.replies[BrokerHeartbeat] = lambda _: BrokerHeartbeatReply(lease_millis=lease_ms)

    def always(self, kind: type[Call[Any]], reply: Reply) -> None:
        """Answer a call with this from now on."""
        self.replies[kind] = lambda _: reply

    def count(self, kind: type[Call[Any]]) -> int:
        return len(self.of(kind))

    def of(self, kind: type[Call[Any]]) -> list[Any]:
        return [call for call in self.asked if type(call) is kind]

    def _serve(self, call: Call[Any], peer: Peer) -> Reply:
        self.asked.append(call)
        self.peers.append(peer)
        kind = type(call)
        if kind is calls.GetControllerMetadata:
            return calls.GetControllerMetadataReply(
                controller_leader_address=self.leader, is_leader=self.is_leader
            )
        if not self.is_leader and kind is not BrokerHeartbeat:
            raise CallRefused(ResponseCode.CONTROLLER_NOT_LEADER, "not in leader state")
        if (refusal := self.refusals.get(kind)) is not None:
            raise refusal
        return self.replies.get(kind, lambda _: kind.reply())(call)


def client_of(*controllers: ScriptedController | str) -> ControllerClient:
    clock = this_loop().clock
    addresses = [one if isinstance(one, str) else one.address for one in controllers]
    return ControllerClient(MEMBER, lambda: addresses, ChannelPool(clock=clock), clock)
