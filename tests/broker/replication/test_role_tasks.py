import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from roquet.broker.replication.role import Role, RoleCell
from roquet.broker.replication.role_tasks import RoleDuties, RoleTasks
from roquet.model.errors import StoreFull
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.testing.clock import in_virtual_time, this_loop

REPLICA = Role(role=BrokerRole.SLAVE, broker_id=1)


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

    def duties(self) -> RoleDuties:
        def both(*names: str) -> Iterable[Any]:
            return (self.work(name) for name in names)

        return RoleDuties(
            of_master=lambda: both("delay", "timer"),
            of_replica=lambda: both("stream"),
            promote=lambda: self.change("promoted"),
            demote=lambda: self.change("demoted"),
        )


@in_virtual_time
async def test_tasks_of_the_former_role_have_ended_before_the_new_one_begins() -> None:
    duties, role, clock = Duties(), RoleCell(Role()), this_loop().clock
    tasks = RoleTasks(role, duties.duties(), clock)
    serving = asyncio.create_task(tasks.serve())
    await clock.sleep(1)
    assert len(tasks) == 2
    role.change(REPLICA)
    await clock.sleep(1_000)
    assert len(tasks) == 1
    role.change(Role())
    await clock.sleep(1_000)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert duties.noted == [
        "delay begins", "timer begins", "delay ends", "timer ends", "demoted", "stream begins",
        "stream ends", "promoted", "delay begins", "timer begins", "delay ends", "timer ends",
    ]  # fmt: skip
    assert len(tasks) == 0


@in_virtual_time
async def test_another_master_to_follow_is_no_change_of_tasks() -> None:
    duties, role, clock = Duties(), RoleCell(REPLICA), this_loop().clock
    serving = asyncio.create_task(RoleTasks(role, duties.duties(), clock).serve())
    await clock.sleep(1)
    role.change(Role(role=BrokerRole.SLAVE, broker_id=1, master_stream="10.0.0.1:1"))
    await clock.sleep(1_000)
    assert duties.noted == ["stream begins"]
    serving.cancel()


@in_virtual_time
async def test_a_change_that_the_disk_does_not_take_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    duties, role, clock = Duties(), RoleCell(REPLICA), this_loop().clock
    serving = asyncio.create_task(RoleTasks(role, duties.duties(), clock).serve())
    await clock.sleep(1)
    duties.fault = StoreFull("no room")
    role.change(Role())
    await clock.sleep(2_500)
    assert duties.noted == ["stream begins", "stream ends"]
    assert "cannot change its role yet: no room" in caplog.text
    duties.fault = None
    await clock.sleep(2_000)
    assert duties.noted[2:] == ["promoted", "delay begins", "timer begins"]
    serving.cancel()


@in_virtual_time
async def test_a_fault_of_our_own_does_not_end_the_change(caplog: pytest.LogCaptureFixture) -> None:
    duties, role, clock = Duties(), RoleCell(REPLICA), this_loop().clock
    serving = asyncio.create_task(RoleTasks(role, duties.duties(), clock).serve())
    await clock.sleep(1)
    duties.fault = ZeroDivisionError()
    role.change(Role())
    await clock.sleep(500)
    assert "cannot change its role; trying again" in caplog.text
    duties.fault = None
    await clock.sleep(2_000)
    assert duties.noted[2:] == ["promoted", "delay begins", "timer begins"]
    serving.cancel()


@in_virtual_time
async def test_a_role_that_is_taken_back_meanwhile_is_taken_back() -> None:
    duties, role, clock = Duties(), RoleCell(REPLICA), this_loop().clock
    serving = asyncio.create_task(RoleTasks(role, duties.duties(), clock).serve())
    await clock.sleep(1)
    duties.fault = StoreFull("no room")
    role.change(Role())
    await clock.sleep(500)
    role.change(REPLICA)
    duties.fault = None
    await clock.sleep(3_000)
    assert duties.noted == ["stream begins", "stream ends", "demoted", "stream begins"]
    serving.cancel()


@in_virtual_time
async def test_a_master_that_was_none_for_a_moment_is_promoted_again() -> None:
    duties, role, clock = Duties(), RoleCell(Role()), this_loop().clock
    serving = asyncio.create_task(RoleTasks(role, duties.duties(), clock).serve())
    await clock.sleep(1)
    role.change(REPLICA)
    role.change(Role())
    await clock.sleep(1_000)
    assert duties.noted[2:] == [
        "delay ends", "timer ends", "promoted", "delay begins", "timer begins",
    ]  # fmt: skip
    serving.cancel()


@in_virtual_time
async def test_a_role_that_changed_before_the_first_step_is_changed_to() -> None:
    duties, role, clock = Duties(), RoleCell(REPLICA), this_loop().clock
    tasks = RoleTasks(role, duties.duties(), clock)
    role.change(Role())
    serving = asyncio.create_task(tasks.serve())
    await clock.sleep(1)
    assert duties.noted == ["promoted", "delay begins", "timer begins"]
    serving.cancel()
