"""ControllerClient: finds the controller that leads, and asks it on behalf of one broker.

    addresses ── 1005, all at once ──▶ leader ── ids, elections, the sync-state set ──▶ GroupView

Every controller answers who leads; only the one that does answers anything else. It is looked for
again after an error; one that says that it leads no more has changed nothing, and the next one is
asked at once. Source: Apache RocketMQ 5.5.0, BrokerOuterAPI and ReplicasManager.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, FieldError, RoquetError, UsageError
from roquet.net.clock import Clock
from roquet.net.pool import ChannelPool
from roquet.rules.replication.role_change import GroupView
from roquet.wire.call import Call, Reply
from roquet.wire.calls import controller as calls
from roquet.wire.calls.route import BrokerHeartbeat, BrokerHeartbeatReply
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

log = logger(__name__)

R = TypeVar("R", bound=Reply)

TIMEOUT_MS: Final = 3_000
"""Timeout of a call to the leader, as of Apache's brokers."""

FIND_TIMEOUT_MS: Final = 1_000
"""Timeout of the question who leads: a controller that does not answer must not hide the leader."""

REASONS_MAX: Final = 8
"""Reasons that are logged of one time without success: they may take turns."""


class NoController(CallError):
    """No controller leads, or none can be reached."""

    def __init__(self, text: str) -> None:
        super().__init__(text, definite=True)


class Complaints:
    """Reasons of failures that were logged since the last success, each once.

    Texts about the network differ in times, and take turns: each kind of error is one reason.
    """

    def __init__(self) -> None:
        self._reasons: set[str] = set()

    def is_new(self, error: RoquetError) -> bool:
        """Whether to log a failure: its reason is new, and there are not too many."""
        is_of_network = isinstance(error, CallError) and not isinstance(error, CallRefused)
        reason = type(error).__name__ if is_of_network else str(error)
        if reason in self._reasons or len(self._reasons) >= REASONS_MAX:
            return False
        self._reasons.add(reason)
        return True

    def end(self) -> bool:
        """Note a success; whether anything had failed before it."""
        had_any = bool(self._reasons)
        self._reasons.clear()
        return had_any


class OwnBroker(msgspec.Struct, frozen=True, kw_only=True):
    """The broker on whose behalf a controller is asked."""

    cluster: str
    name: str
    """Name of the broker's group."""
    address: str
    """HOST:PORT that clients and replicas are told."""


class ControllerClient:
    """Calls to the controller that leads."""

    def __init__(
        self,
        member: OwnBroker,
        addresses: Callable[[], Sequence[str]],
        pool: ChannelPool,
        clock: Clock,
    ) -> None:
        self._member = member
        self._addresses = addresses
        self._pool = pool
        self._clock = clock
        self._finding: asyncio.Task[str] | None = None
        self._spreading: dict[str, asyncio.Task[None]] = {}
        self.leader: str | None = None
        """Address of the controller that leads; None: to be found out."""

    async def find(self) -> str:
        """Ask all controllers who leads; raises NoController if none knows.

        A controller that says that it leads itself is believed before others.
        """
        if self._finding is None:
            self._finding = asyncio.create_task(self._find())
            self._finding.add_done_callback(self._found)
        return await asyncio.shield(self._finding)

    def _found(self, task: asyncio.Task[str]) -> None:
        self._finding = None
        if not task.cancelled():
            task.exception()  # those who wait raise it; asyncio must not log it

    async def _find(self) -> str:
        addresses = self._addresses()
        asked = [asyncio.create_task(self._ask_who_leads(address)) for address in addresses]
        named: str | None = None
        failed: list[str] = []
        try:
            for answer in asyncio.as_completed(asked):
                reply = await answer
                if isinstance(reply, str):
                    failed.append(reply)
                    continue
                if not reply.controller_leader_address:
                    continue
                named = named or reply.controller_leader_address
                if reply.is_leader:
                    named = reply.controller_leader_address
                    break
        finally:
            for task in asked:
                task.cancel()
        if named is None:
            why = f": {'; '.join(sorted(failed))}" if failed else ""
            raise NoController(
                f"none of the controllers {', '.join(addresses)} knows a leader{why}"
            )
        if named != self.leader:
            log.info("controller %s leads", named)
        self.leader = named
        return named

    async def _ask_who_leads(self, address: str) -> calls.GetControllerMetadataReply | str:
        """The answer of one controller, or why there is none."""
        try:
            return await self._pool.call(address, calls.GetControllerMetadata(), FIND_TIMEOUT_MS)
        except (CallError, FieldError) as error:
            text = str(error)
            return text if text.startswith(address) else f"{address}: {text}"

    async def call(self, call: Call[R], timeout_ms: int = TIMEOUT_MS) -> R:
        """Call the leader, and its successor if it leads no more.

        Raises CallError; NoController if there is no leader.
        """
        leader = self.leader or await self.find()
        try:
            return await self._ask(leader, call, timeout_ms)
        except CallRefused as error:
            if error.code != ResponseCode.CONTROLLER_NOT_LEADER:
                raise
            successor = await self._successor(leader)
            if successor is None:
                raise
        return await self._ask(successor, call, timeout_ms)

    async def _successor(self, leader: str) -> str | None:
        """The controller that leads after one that has refused a call; None if none does yet."""
        try:
            found = await self.find()
        except NoController:
            return None
        return found if found != leader else None

    async def _ask(self, leader: str, call: Call[R], timeout_ms: int) -> R:
        """Call a controller; it is forgotten if it does not answer, or leads no more."""
        try:
            return await self._pool.call(leader, call, timeout_ms)
        except CallRefused as error:
            if error.code == ResponseCode.CONTROLLER_NOT_LEADER:
                self._forget(leader)
            raise
        except CallError:
            self._forget(leader)
            raise
        except (FieldError, UsageError) as error:
            self._forget(leader)
            _nonsense(leader, error)

    def _forget(self, leader: str) -> None:
        if self.leader == leader:
            self.leader = None

    async def hang_up(self) -> None:
        """Close the connection to the leader, which takes this broker for dead then."""
        if self.leader is not None:
            with suppress(CallError):
                channel = await self._pool.get(self.leader, timeout_ms=FIND_TIMEOUT_MS)
                await channel.close()

    async def next_id(self) -> int:
        """Id that a new broker of the group may apply for."""
        call = calls.GetNextBrokerId(
            cluster_name=self._member.cluster, broker_name=self._member.name
        )
        reply = await self.call(call)
        if reply.next_broker_id is None or reply.next_broker_id < 1:
            _nonsense(self.leader, FieldError(f"next id {reply.next_broker_id}"))
        return reply.next_broker_id

    async def apply_id(self, broker_id: int, check_code: str) -> None:
        """Apply for an id; CallRefused with CONTROLLER_BROKER_ID_INVALID if another has it."""
        await self.call(
            calls.ApplyBrokerId(
                cluster_name=self._member.cluster,
                broker_name=self._member.name,
                applied_broker_id=broker_id,
                register_check_code=check_code,
            )
        )

    async def register(self, broker_id: int) -> None:
        """Report the address of this broker; CONTROLLER_BROKER_NEED_TO_BE_REGISTERED without id."""
        await self.call(
            calls.RegisterWithController(
                cluster_name=self._member.cluster,
                broker_name=self._member.name,
                broker_id=broker_id,
                broker_address=self._member.address,
                invoke_time=self._clock.now_ms(),
            )
        )

    async def group(self) -> GroupView:
        """State of the group: who leads it, and its sync-state set."""
        reply = await self.call(calls.GetReplicaInfo(broker_name=self._member.name))
        return _view(self.leader, reply, reply.body)

    async def elect(self, broker_id: int, epoch: int) -> bool:
        """Ask for an election; raises CallRefused if nobody can be elected.

        `epoch` is the latest one that this broker knows. True if it is the master already, and
        stays it in its old epoch.
        """
        reply = await self.call(
            calls.ElectMaster(
                cluster_name=self._member.cluster,
                broker_name=self._member.name,
                broker_id=broker_id,
                designate_elect=False,
                broker_epoch=epoch,
                invoke_time=self._clock.now_ms(),
            )
        )
        still_leads = reply.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        return still_leads and reply.master_broker_id == broker_id

    async def alter_set(
        self, master: int, epoch: int, version: int, members: frozenset[int]
    ) -> calls.SyncStateSet:
        """Replace the sync-state set of a version; the answer is the new set."""
        wanted = calls.SyncStateSet(sync_state_set=sorted(members), sync_state_set_epoch=version)
        reply = await self.call(
            calls.AlterSyncStateSet(
                broker_name=self._member.name,
                master_broker_id=master,
                master_epoch=epoch,
                invoke_time=self._clock.now_ms(),
                body=codec.dumps(wanted),
            )
        )
        changed = _set(self.leader, reply.body)
        version = reply.new_sync_state_set_epoch
        return msgspec.structs.replace(changed, sync_state_set_epoch=version)

    async def heartbeat(self, beat: BrokerHeartbeat, timeout_ms: int) -> BrokerHeartbeatReply:
        """Send a heartbeat to the leader, which answers; to the others, one way."""
        leader = self.leader or await self.find()
        for address in self._addresses():
            if address != leader:
                self._spread(address, beat)
        return await self.call(beat, timeout_ms)

    def _spread(self, address: str, beat: BrokerHeartbeat) -> None:
        """Send a heartbeat one way: another controller may lead soon, and has to know us.

        A controller that does not read gets no further one.
        """
        if address in self._spreading:
            return
        task = self._spreading[address] = asyncio.create_task(self._pool.oneway(address, beat))
        task.add_done_callback(lambda done: self._spread_done(address, done))

    def _spread_done(self, address: str, task: asyncio.Task[None]) -> None:
        del self._spreading[address]
        if not task.cancelled():
            task.exception()


def heartbeat_of(member: OwnBroker, **fields: Any) -> BrokerHeartbeat:
    """Heartbeat of a broker, with further fields of it."""
    return BrokerHeartbeat(
        cluster_name=member.cluster, broker_addr=member.address, broker_name=member.name, **fields
    )


def _view(leader: str | None, reply: calls.GetReplicaInfoReply, body: bytes) -> GroupView:
    members = _set(leader, body)
    return GroupView(
        epoch=reply.master_epoch or 0,
        master=reply.master_broker_id,
        address=reply.master_address,
        members=frozenset(members.sync_state_set),
        set_version=members.sync_state_set_epoch,
    )


def _set(leader: str | None, body: bytes) -> calls.SyncStateSet:
    if not body:
        return calls.SyncStateSet()
    try:
        return codec.loads(body, calls.SyncStateSet)
    except FieldError as error:
        _nonsense(leader, error)


def _nonsense(leader: str | None, error: FieldError | UsageError) -> NoReturn:
    raise CallError(f"controller {leader} answers what cannot be read: {error}", definite=False)
