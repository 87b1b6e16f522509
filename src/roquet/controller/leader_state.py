"""LeaderState: what a controller knows while it leads: groups as they are stored, and leases.

Decisions about a group are made one after the other. A decision is stored before it counts, and a
term ends with the first write whose result is not known: the next term begins by reading again.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from msgspec.structs import replace

from roquet.controller.state_store.interface import (
    LeadershipLost,
    StateStore,
    StateStoreError,
    StoredGroup,
)
from roquet.model.errors import CallRefused
from roquet.net.clock import Clock
from roquet.rules.election.group import Refusal, ReplicaGroup
from roquet.rules.election.lease import (
    LeaseRequest,
    LeaseTerms,
    MasterLease,
    StricterRule,
    assumed_lease,
    grant_lease,
    next_logs_needed,
    released_lease,
)
from roquet.wire.codes import ResponseCode

NOT_LEADER: Final = "The controller is not in leader state"
"""Apache's remark."""

T = TypeVar("T")

Decision = Callable[[ReplicaGroup | None], ReplicaGroup | Refusal]


class LeaderState:
    """State in one term. `on_end` is called once when the term ends, with the reason."""

    def __init__(
        self,
        store: StateStore,
        term: int,
        groups: Mapping[str, StoredGroup],
        clock: Clock,
        terms: LeaseTerms,
    ) -> None:
        self.term = term
        self.on_end: Callable[[str], object] = lambda _: None
        self._store = store
        self._clock = clock
        self._terms = terms
        self._groups = dict(groups)
        self._known = {name: frozenset(one.group.replicas) for name, one in groups.items()}
        """Ids of each group when the term began."""
        self._latest: set[str] = set()
        """Names of groups whose stored state is the latest one."""
        now_ms = clock.monotonic_ms()
        self._leases = {
            name: assumed_lease(now_ms, _longest(terms, stored.group))
            for name, stored in groups.items()
        }
        self._stricter: dict[str, StricterRule] = {}
        """Rules of masters that do not cover yet what was acknowledged before."""
        self._withheld: dict[str, int] = {}
        """Names of groups whose leases are not prolonged, and until when."""
        self._restarted: dict[tuple[str, int], int] = {}
        """Brokers that have released their leases, and the epoch of their group at that time."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._confirmation = SharedRun(lambda: store.confirm(term))
        self.has_ended = False

    @property
    def names(self) -> list[str]:
        """Names of all groups."""
        return list(self._groups)

    def group(self, name: str) -> ReplicaGroup | None:
        """A group; None for an unknown one."""
        stored = self._groups.get(name)
        return stored.group if stored else None

    def is_latest(self, name: str) -> bool:
        """Whether a group's stored state has proved to be the latest one, in this term.

        Its master has been granted a lease in the stored epoch, which no member contradicted. Only
        this controller elects in this term, so that it stays the latest.
        """
        return name in self._latest

    def may_tell_epochs(self, name: str, broker_id: int) -> bool:
        """Whether a broker's word counts against the stored state of its group.

        That of brokers counts that were members when the term began, or in sync since: if an old
        copy of the state was restored, the winner of the next election is among them, since a
        master names its set with each heartbeat. Whoever has got an id since knows nothing older.
        """
        group = self.group(name)
        in_sync = frozenset[int]() if group is None else group.in_sync
        return broker_id in self._known.get(name, ()) or broker_id in in_sync

    def lease(self, name: str) -> MasterLease | None:
        """The lease of a group's master; None if no master of it asked for one."""
        return self._leases.get(name)

    def has_restarted(self, name: str, broker_id: int) -> bool:
        """Whether a broker has released its lease and was granted none since."""
        return (name, broker_id) in self._restarted

    def lock(self, name: str) -> asyncio.Lock:
        """The lock to hold from a decision about a group until it is stored."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    async def update(self, name: str, decide: Decision) -> ReplicaGroup:
        """Decide about a group and store the result; a Refusal is raised as CallRefused."""

        async def work() -> ReplicaGroup:
            async with self.lock(name):
                result = decide(self.group(name))
                if isinstance(result, Refusal):
                    raise CallRefused(result.code, result.remark)
                await self.save(name, result)
                return result

        return await self.finish(work())

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work to its end, even if the peer that asked for it goes in between."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        _retrieved(task)

    async def save(self, name: str, group: ReplicaGroup) -> None:
        """Store a group if it differs; the caller holds its lock.

        Raises CallRefused. CONTROLLER_NOT_LEADER means that nothing was changed, SYSTEM_ERROR that
        the result is not known.
        """
        stored = self._groups.get(name)
        if stored is not None and stored.group == group:
            return
        revision = stored.revision if stored else 0
        try:
            self._check()
            revision = await self._store.save(self.term, name, group, revision)
        except StateStoreError as error:
            raise self._refused(error) from error
        self._groups[name] = StoredGroup(group, revision)

    async def grant(self, name: str, request: LeaseRequest) -> MasterLease:
        """Grant or prolong the lease of a group's master. Raises CallRefused.

        The store confirms first that this controller leads, so without the store no lease is
        granted: masters then go on until their leases end, `lease_ms` after the last heartbeat that
        was answered, and refuse writes until the store answers again. A longer lease lets them
        outlast a longer pause of etcd, and lets replicas wait longer after a master was lost. Its
        length is stored first, for controllers with another setting, and so is the number of logs
        in which the master has a message before it acknowledges it.
        """
        try:
            self._check()
            await self._confirmation.join()
            self._check()
        except StateStoreError as error:
            raise self._refused(error) from error
        async with self.lock(name):
            lease = self._next_lease(name, request)
            if await self._save_promises(name, request):
                lease = self._next_lease(name, request)
            self._leases[name] = lease
            self._latest.add(name)
            self._restarted.pop((name, request.broker_id), None)
            return lease

    async def _save_promises(self, name: str, request: LeaseRequest) -> bool:
        """Store what a lease promises beyond its end; whether that has changed."""
        group = self.group(name)
        assert group is not None, "its lease is about to be granted"
        needed = next_logs_needed(group.logs_needed, request, self._stricter.pop(name, None))
        if needed.waiting is not None:
            self._stricter[name] = needed.waiting
        lease_ms = max(group.lease_ms, self._terms.length_ms)
        promised = replace(group, lease_ms=lease_ms, logs_needed=needed.stored)
        if promised == group:
            return False
        await self.save(name, promised)
        return True

    def _next_lease(self, name: str, request: LeaseRequest) -> MasterLease:
        """The lease to grant; CallRefused if it cannot be granted."""
        if self.has_ended:
            raise CallRefused(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER)
        group = self.group(name)
        if group is None:
            remark = f"there is no group {name}"
            raise CallRefused(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, remark)
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._withheld.get(name, now_ms):
            remark = "another broker is to be elected as soon as the lease is over"
            raise CallRefused(ResponseCode.CONTROLLER_INVALID_MASTER, remark)
        if self._restarted.get((name, request.broker_id)) == request.epoch:
            remark = f"the master of epoch {request.epoch} was started again: it has to be elected"
            raise CallRefused(ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, remark)
        result = grant_lease(group, self.lease(name), request, now_ms, self._terms)
        if isinstance(result, Refusal):
            raise CallRefused(result.code, result.remark)
        return result

    def release(self, name: str, broker_id: int, address: str) -> None:
        """Note that a broker acknowledges nothing until it is granted a lease again.

        That is one of a later epoch: its log may have lost what had not reached the disk, so that
        an election has to compare it with the others'.
        """
        group = self.group(name)
        if group is None or broker_id not in group.replicas:
            return
        self._restarted[name, broker_id] = group.master_epoch
        lease = self.lease(name)
        if lease is not None:
            now_ms = self._clock.monotonic_ms()
            self._leases[name] = released_lease(lease, broker_id, address, now_ms)

    def withhold(self, name: str, until_ms: int) -> None:
        """Do not prolong the lease of a group's master until a time on the monotonic clock."""
        self._withheld[name] = until_ms

    def end(self, reason: str) -> None:
        """End the term; nothing is decided in it any more."""
        if not self.has_ended:
            self.has_ended = True
            self.on_end(reason)

    def _check(self) -> None:
        if self.has_ended:
            raise LeadershipLost("the term is over")

    def _refused(self, error: StateStoreError) -> CallRefused:
        """The refusal for an error of the store, which may end the term."""
        if not error.definite:
            self.end(str(error))
            remark = f"it is not known whether the state was changed: {error}"
            return CallRefused(ResponseCode.SYSTEM_ERROR, remark, definite=False)
        if isinstance(error, LeadershipLost):
            self.end(str(error))
            return CallRefused(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER)
        return CallRefused(ResponseCode.CONTROLLER_NOT_LEADER, f"{NOT_LEADER}: {error}")


def _longest(terms: LeaseTerms, group: ReplicaGroup) -> LeaseTerms:
    """Terms of the longest lease that a master of the group may hold."""
    return replace(terms, length_ms=max(terms.length_ms, group.lease_ms))


class SharedRun:
    """An operation that serves everybody who asked for it before it began."""

    def __init__(self, operation: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._operation = operation
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Wait for the end of a run that begins after this call; raises its error."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._run(self._running))
            self._next.add_done_callback(_retrieved)
        await asyncio.shield(self._next)

    async def _run(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        await self._operation()


def _retrieved(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()  # raised to those who wait; asyncio must not log it
