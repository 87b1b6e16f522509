"""Role: what a broker is in its group at this moment, and the tasks that change with it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeAlias

import msgspec

from roquet.log_records import logger
from roquet.model.errors import StoreError
from roquet.model.topic import MASTER_ID
from roquet.net.clock import Clock
from roquet.rules.replication.acknowledgement import BrokerRole

log = logger(__name__)

RETRY_MS: Final = 1_000
"""Ms between two tries to change: the disk may be full."""

Work: TypeAlias = Callable[[], Iterable[Coroutine[Any, Any, None]]]
"""Makes the coroutines to run."""


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """Role of a broker in its group, the brokers of one name."""

    role: BrokerRole = BrokerRole.ASYNC_MASTER
    broker_id: int = MASTER_ID
    """Id under which name servers know it: 0 is the master."""
    epoch: int = 0
    """Epoch of the master that it is or follows; 0 while roles are fixed."""
    master: str | None = None
    """HOST:PORT of the master that a replica follows; None: not known, or this broker itself."""
    master_stream: str | None = None
    """HOST:PORT at which that master streams its log; None: not known, or this broker itself."""
    is_fenced: bool = False
    """Whether it takes no messages for now: it does not know yet who leads, or its lease ended."""

    @property
    def is_master(self) -> bool:
        """Whether this broker leads its group."""
        return self.role is not BrokerRole.SLAVE

    @property
    def is_active(self) -> bool:
        """Whether this broker takes messages: it leads, and is not fenced."""
        return self.is_master and not self.is_fenced


class RoleCell:
    """The role of this broker, which may change while it runs."""

    def __init__(self, role: Role) -> None:
        self.current = role
        self.on_change: list[Callable[[Role, Role], None]] = []
        """Each is called with the role before and the new one, in the order of subscription."""
        self._breaks = 0
        self._has_taken_over = role.is_active

    @property
    def is_settled(self) -> bool:
        """Whether the queues and tables of this broker are those of its role.

        False while it does not know its role, and at a new master from its election until its
        queues have all that its log has (`note_taken_over`). A lease that lapses changes nothing.
        """
        role = self.current
        return self._has_taken_over if role.is_master else not role.is_fenced

    def note_taken_over(self) -> None:
        """Note that the queues of this master have all that its log has."""
        self._has_taken_over = True

    def change(self, role: Role) -> None:
        """Take another role; nothing happens if it is the same one."""
        before, self.current = self.current, role
        if before.is_active and not role.is_active:
            self._breaks += 1
        self._has_taken_over &= role.is_master
        if role != before:
            for callback in self.on_change:
                callback(before, role)

    def unbroken_activity(self) -> Callable[[], bool]:
        """Returns a function that says whether this broker has been active without a break.

        A master may be fenced and released again between two looks at its role.
        """
        breaks = self._breaks
        return lambda: self.current.is_active and self._breaks == breaks


class Loops:
    """Tasks that run until they are stopped together."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def __len__(self) -> int:
        return sum(not task.done() for task in self._tasks)

    def start(self, *work: Coroutine[Any, Any, None]) -> None:
        """Let each run until `stop`."""
        self._tasks += [asyncio.create_task(coroutine) for coroutine in work]

    async def stop(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []


class RoleTasks:
    """Runs the tasks of the current role.

        replica's tasks ──role changes──▶ all of them end ──▶ promote ──▶ master's tasks
                        ◀── demote ◀────── all of them end ◀─────────────

    A task of the former role has ended before anything of the new one begins: none may work on what
    is not its own any more (issue 7261 of Apache RocketMQ, a loop of a delay level that never
    ended).
    """

    def __init__(
        self,
        role: RoleCell,
        clock: Clock,
        *,
        of_master: Work,
        of_replica: Work,
        promote: Callable[[], Awaitable[None]],
        demote: Callable[[], Awaitable[None]],
    ) -> None:
        """`promote` makes a replica's state a master's, and `demote` brings that to an end.

        The former may raise StoreError, and is tried again then.
        """
        self._role = role
        self._clock = clock
        self._of_master, self._of_replica = of_master, of_replica
        self._promote, self._demote = promote, demote
        self._changed = asyncio.Event()
        self._loops = Loops()
        self._is_due = False
        """Whether the broker has begun or ceased to be active, perhaps twice."""

    def follow_role(self, before: Role, role: Role) -> None:
        """Have the tasks changed if the broker has begun or ceased to be active."""
        self._is_due |= before.is_active != role.is_active
        self._changed.set()

    def __len__(self) -> int:
        return len(self._loops)

    async def serve(self) -> None:
        """Run the tasks of the role, and change them with it, forever.

        A role that has changed before, since this was made, is changed to first.
        """
        if not self._is_due:
            self._start(self._role.current.is_active)
        try:
            while True:
                if self._is_due:
                    self._is_due = False
                    await self._change(self._role.current.is_active)
                await self._changed.wait()
                self._changed.clear()
        finally:
            await self._loops.stop()

    async def _change(self, is_active: bool) -> None:
        await self._loops.stop()
        act = self._promote if is_active else self._demote
        while self._role.current.is_active == is_active:
            try:
                await act()
            except StoreError as error:
                log.warning("this broker cannot change its role yet: %s", error)
                await self._clock.sleep(RETRY_MS)
            except Exception:  # it would neither lead nor follow ever again
                log.exception("this broker cannot change its role; trying again")
                await self._clock.sleep(RETRY_MS)
            else:
                self._start(is_active)
                return

    def _start(self, is_active: bool) -> None:
        work = self._of_master() if is_active else self._of_replica()
        self._loops.start(*work)
