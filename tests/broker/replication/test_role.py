import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.broker.conftest import background

from roquet.broker.replication.role import Role, RoleCell, RoleTasks
from roquet.model.errors import StoreFull
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.testing.clock import this_loop

pytestmark = pytest.mark.virtual_time

MASTER, REPLICA = Role(), Role(role=BrokerRole.SLAVE, broker_id=1, master="127.0.0.1:10911")

REPLICA = Role(role=BrokerRole.SLAVE, broker_id=1)


def test_a_broker_leads_unless_it_is_a_replica() -> None:
    assert MASTER.is_master
    assert not REPLICA.is_master


def test_those_who_follow_the_role_are_told_of_each_change_in_order() -> None:
    cell, seen = RoleCell(MASTER), list[tuple[str, Role, Role]]()
    cell.on_change.append(lambda before, now: seen.append(("first", before, now)))
    cell.on_change.append(lambda before, now: seen.append(("second", before, now)))
    cell.change(REPLICA)
    assert cell.current == REPLICA
    assert seen == [("first", MASTER, REPLICA), ("second", MASTER, REPLICA)]


def test_the_same_role_again_is_no_change() -> None:
    cell, seen = RoleCell(MASTER), list[Role]()
    cell.on_change.append(lambda _, now: seen.append(now))
    cell.change(Role())
    assert seen == []


def test_a_master_that_is_fenced_takes_no_messages() -> None:
    assert MASTER.is_active
    assert not Role(is_fenced=True).is_active
    assert not REPLICA.is_active


def test_a_new_master_is_settled_once_it_has_taken_over() -> None:
    cell = RoleCell(REPLICA)
    assert cell.is_settled
    cell.change(Role(is_fenced=True))
    cell.change(MASTER)
    assert not cell.is_settled
    cell.note_taken_over()
    assert cell.is_settled
    cell.change(REPLICA)
    cell.change(MASTER)
    assert not cell.is_settled, "its log was another broker's in between"


def test_a_master_whose_lease_lapses_stays_settled() -> None:
    cell = RoleCell(MASTER)
    cell.change(Role(is_fenced=True))
    assert cell.is_settled


def test_a_broker_that_does_not_know_its_role_is_not_settled() -> None:
    cell = RoleCell(Role(role=BrokerRole.SLAVE, broker_id=-1, is_fenced=True))
    assert not cell.is_settled
    cell.change(REPLICA)
    assert cell.is_settled


class Duties:
    """Duties that note what is begun and ended, in order."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.fault: Exception | None = None

    async def work(self, name: str) -> None:
        self.noted.append(f"{name} begins")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)  # a task may take a while to end
            self.noted.append(f"{name} ends")

    async def change(self, name: str) -> None:
        if self.fault is not None:
            raise self.fault
        self.noted.append(name)

    def tasks(self, role: RoleCell) -> RoleTasks:
        def both(*names: str) -> Iterable[Any]:
            return (self.work(name) for name in names)

        tasks = RoleTasks(
            role,
            this_loop().clock,
            of_master=lambda: both("delay", "timer"),
            of_replica=lambda: both("stream"),
            promote=lambda: self.change("promoted"),
            demote=lambda: self.change("demoted"),
        )
        role.on_change.append(tasks.follow_role)
        return tasks


@asynccontextmanager
async def running(first: Role) -> AsyncIterator[tuple[Duties, RoleCell]]:
    """Duties that are carried out by role, a moment after the start in the first one."""
    duties, role = Duties(), RoleCell(first)
    serving = asyncio.create_task(duties.tasks(role).serve())
    await asyncio.sleep(0.001)
    yield duties, role
    serving.cancel()


async def test_tasks_of_the_former_role_have_ended_before_the_new_one_begins() -> None:
    duties, role, clock = Duties(), RoleCell(Role()), this_loop().clock
    tasks = duties.tasks(role)
    async with background(tasks.serve()):
        await clock.sleep(1)
        assert len(tasks) == 2
        role.change(REPLICA)
        await clock.sleep(1_000)
        assert len(tasks) == 1
        role.change(Role())
        await clock.sleep(1_000)
    assert duties.noted == [
        "delay begins", "timer begins", "delay ends", "timer ends", "demoted", "stream begins",
        "stream ends", "promoted", "delay begins", "timer begins", "delay ends", "timer ends",
    ]  # fmt: skip
    assert len(tasks) == 0


async def test_another_master_to_follow_is_no_change_of_tasks() -> None:
    async with running(REPLICA) as (duties, role):
        role.change(Role(role=BrokerRole.SLAVE, broker_id=1, master_stream="10.0.0.1:1"))
        await asyncio.sleep(1)
        assert duties.noted == ["stream begins"]


async def test_a_change_that_the_disk_does_not_take_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(REPLICA) as (duties, role):
        duties.fault = StoreFull("no room")
        role.change(Role())
        await asyncio.sleep(2.5)
        assert duties.noted == ["stream begins", "stream ends"]
        assert "cannot change its role yet: no room" in caplog.text
        duties.fault = None
        await asyncio.sleep(2)
        assert duties.noted[2:] == ["promoted", "delay begins", "timer begins"]


async def test_a_fault_of_our_own_does_not_end_the_change(caplog: pytest.LogCaptureFixture) -> None:
    async with running(REPLICA) as (duties, role):
        duties.fault = ZeroDivisionError()
        role.change(Role())
        await asyncio.sleep(0.5)
        assert "cannot change its role; trying again" in caplog.text
        duties.fault = None
        await asyncio.sleep(2)
        assert duties.noted[2:] == ["promoted", "delay begins", "timer begins"]


async def test_a_role_that_is_taken_back_meanwhile_is_taken_back() -> None:
    async with running(REPLICA) as (duties, role):
        duties.fault = StoreFull("no room")
        role.change(Role())
        await asyncio.sleep(0.5)
        role.change(REPLICA)
        duties.fault = None
        await asyncio.sleep(3)
        assert duties.noted == ["stream begins", "stream ends", "demoted", "stream begins"]


async def test_a_master_that_was_none_for_a_moment_is_promoted_again() -> None:
    async with running(Role()) as (duties, role):
        role.change(REPLICA)
        role.change(Role())
        await asyncio.sleep(1)
        assert duties.noted[2:] == [
            "delay ends", "timer ends", "promoted", "delay begins", "timer begins",
        ]  # fmt: skip


async def test_a_role_that_changed_before_the_first_step_is_changed_to() -> None:
    duties, role, clock = Duties(), RoleCell(REPLICA), this_loop().clock
    tasks = duties.tasks(role)
    role.change(Role())
    async with background(tasks.serve()):
        await clock.sleep(1)
        assert duties.noted == ["promoted", "delay begins", "timer begins"]
