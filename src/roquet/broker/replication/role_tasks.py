"""RoleTasks: tasks of a master, and others of a replica, changed with the broker's role.

    replica's tasks ──role changes──▶ all of them end ──▶ promote ──▶ master's tasks
                    ◀── demote ◀────── all of them end ◀─────────────

A task of the former role has ended before anything of the new one begins: none may work on what is
not its own any more (issue 7261 of Apache RocketMQ, a loop of a delay level that never ended).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeAlias

import msgspec

from roquet.broker.replication.role import Role, RoleCell
from roquet.log_records import logger
from roquet.model.errors import StoreError
from roquet.net.clock import Clock

log = logger(__name__)

RETRY_MS: Final = 1_000
"""Ms between two tries to change: the disk may be full."""

Work: TypeAlias = Callable[[], Iterable[Coroutine[Any, Any, None]]]
"""Makes the coroutines to run."""


class RoleDuties(msgspec.Struct, frozen=True, kw_only=True):
    """Duties of a broker in either role, and of the change from one to the other."""

    of_master: Work
    of_replica: Work
    promote: Callable[[], Awaitable[None]]
    """Make a replica's state a master's; may raise StoreError, and is tried again then."""
    demote: Callable[[], Awaitable[None]]
    """Bring a master's state to an end."""


class RoleTasks:
    """Runs the tasks of the current role."""

    def __init__(self, role: RoleCell, duties: RoleDuties, clock: Clock) -> None:
        self._role = role
        self._duties = duties
        self._clock = clock
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_due = False
        """Whether the broker has begun or ceased to be active, perhaps twice."""
        role.on_change.append(self._note_change)

    def _note_change(self, before: Role, role: Role) -> None:
        self._is_due |= before.is_active != role.is_active
        self._changed.set()

    def __len__(self) -> int:
        return sum(not task.done() for task in self._tasks)

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
            await self._stop()

    async def _change(self, is_active: bool) -> None:
        await self._stop()
        act = self._duties.promote if is_active else self._duties.demote
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
        work = self._duties.of_master() if is_active else self._duties.of_replica()
        self._tasks = [asyncio.create_task(coroutine) for coroutine in work]

    async def _stop(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
