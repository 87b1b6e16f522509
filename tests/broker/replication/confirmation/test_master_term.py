"""The term of a master, by a clock that goes on while the machine sleeps."""

import asyncio

from roquet.broker.replication.confirmation.master_term import MasterTermCell
from roquet.rules.election.lease import MasterTerm
from roquet.testing.clock import VirtualClock, in_virtual_time, this_loop


class SleepyClock(VirtualClock):
    """A machine whose sleep the monotonic clock does not count."""

    asleep_ms = 0

    def boottime_ms(self) -> int:
        return self.monotonic_ms() + self.asleep_ms


def test_without_a_term_nothing_may_be_acknowledged() -> None:
    assert not MasterTermCell(VirtualClock()).may_acknowledge(1)


def test_a_term_is_of_one_epoch_and_ends() -> None:
    clock = VirtualClock()
    cell = MasterTermCell(clock)
    cell.extend(MasterTerm(epoch=3, until_ms=2_000))
    assert cell.may_acknowledge(3)
    assert not cell.may_acknowledge(2)
    clock.jump(1_999)
    assert cell.may_acknowledge(3)
    clock.jump(1)
    assert not cell.may_acknowledge(3)


def test_the_time_for_which_a_machine_slept_counts() -> None:
    clock = SleepyClock()
    cell = MasterTermCell(clock)
    cell.extend(MasterTerm(epoch=3, until_ms=2_000))
    clock.asleep_ms = 60_000
    assert not cell.may_acknowledge(3)


def test_an_answer_that_was_overtaken_shortens_nothing() -> None:
    cell = MasterTermCell(VirtualClock())
    cell.extend(MasterTerm(epoch=3, until_ms=2_000))
    cell.extend(MasterTerm(epoch=3, until_ms=1_000))
    assert cell.current == MasterTerm(epoch=3, until_ms=2_000)
    cell.extend(MasterTerm(epoch=4, until_ms=1_500))
    assert cell.current == MasterTerm(epoch=4, until_ms=1_500)
    cell.end()
    assert cell.current is None


@in_virtual_time
async def test_the_end_of_a_term_is_waited_for_however_often_it_is_extended() -> None:
    clock = this_loop().clock
    cell = MasterTermCell(clock)
    await cell.wait_end()
    cell.extend(MasterTerm(epoch=3, until_ms=2_000))
    end = asyncio.create_task(cell.wait_end())
    await clock.sleep(1_500)
    cell.extend(MasterTerm(epoch=3, until_ms=4_000))
    await end
    assert clock.monotonic_ms() == 4_000
    again = asyncio.create_task(cell.wait_extended())
    await clock.sleep(10)
    assert not again.done()
    cell.extend(MasterTerm(epoch=3, until_ms=5_000))
    await again
