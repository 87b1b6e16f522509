"""The shop: answers that come from its database."""

import pytest

from roquet.client.checking import TransactionState
from roquet.model.message import StoredMessage
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.testing.simulation.day.ledger import Fate, Ledger
from roquet.testing.simulation.day.plan import Course, Errand, Kind, plan
from roquet.testing.simulation.day.shop import Shop
from roquet.testing.simulation.hosts import Hosts


class Asked:
    body = b"e1"


def answers(fate: Fate, course: Course = Course.LATER, unsure: int = 0) -> list[TransactionState]:
    loop = this_loop()
    errand = Errand(
        name="e1", at_ms=0, kind=Kind.TRANSACTION, failures=0, tag="a", weight=1,
        course=course, unsure=unsure,
    )  # fmt: skip
    ledger = Ledger(loop.clock.now_ms)
    shop = Shop(plan(0), Hosts(loop), ledger, loop.clock)
    shop._errands = {"e1": errand}
    ledger.decide("e1", fate, "shop")
    asked: StoredMessage = Asked()  # type: ignore[assignment]
    return [shop._check("shop", asked) for _ in range(2)]


@in_virtual_time
async def test_the_database_says_what_became_of_a_transaction() -> None:
    assert answers(Fate.KEPT) == [TransactionState.COMMIT] * 2
    assert answers(Fate.DROPPED) == [TransactionState.ROLLBACK] * 2
    assert answers(Fate.OPEN) == [TransactionState.UNKNOWN] * 2


@in_virtual_time
async def test_who_is_unsure_says_so_for_some_times() -> None:
    assert answers(Fate.KEPT, unsure=1) == [TransactionState.UNKNOWN, TransactionState.COMMIT]


@in_virtual_time
async def test_of_some_nobody_ever_says() -> None:
    assert answers(Fate.KEPT, Course.NEVER) == [TransactionState.UNKNOWN] * 2


@pytest.mark.parametrize("by_time", [True, False])
@in_virtual_time
async def test_a_delivery_time_is_given_as_one_or_as_a_delay(by_time: bool) -> None:
    loop = this_loop()
    shop = Shop(plan(0), Hosts(loop), Ledger(loop.clock.now_ms), loop.clock)
    errand = Errand(
        name="e1", at_ms=0, kind=Kind.TIMER, failures=0, tag="a", weight=1,
        wait_ms=1_500, by_time=by_time,
    )  # fmt: skip
    made = shop._message(errand, loop.clock.now_ms())
    assert (made.deliver_at is not None, made.delay is not None) == (by_time, not by_time)
    if made.deliver_at:
        assert round(made.deliver_at.timestamp() * 1_000) == loop.clock.now_ms() + 1_500
