"""The shop: answers that come from its database."""

import pytest

from roquet.client.transaction_check import TransactionState
from roquet.model.message import StoredMessage
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.testing.simulation.hosts import Hosts
from roquet.testing.simulation.timed.history import DatabaseState, TimedHistory
from roquet.testing.simulation.timed.scenario import (
    SendKind,
    SendOperation,
    TransactionCourse,
    plan,
)
from roquet.testing.simulation.timed.transactional_producer import TransactionalProducer


class Asked:
    body = b"e1"


def answers(
    fate: DatabaseState, course: TransactionCourse = TransactionCourse.LATER, unsure: int = 0
) -> list[TransactionState]:
    loop = this_loop()
    operation = SendOperation(
        name="e1", at_ms=0, kind=SendKind.TRANSACTION, failures=0, tag="a", weight=1,
        course=course, unsure=unsure,
    )  # fmt: skip
    history = TimedHistory(loop.clock.now_ms)
    producer = TransactionalProducer(plan(0), Hosts(loop), history, loop.clock)
    producer._operations = {"e1": operation}
    history.decide("e1", fate, "shop")
    asked: StoredMessage = Asked()  # type: ignore[assignment]
    return [producer._check("shop", asked) for _ in range(2)]


@in_virtual_time
async def test_the_database_says_what_became_of_a_transaction() -> None:
    assert answers(DatabaseState.KEPT) == [TransactionState.COMMIT] * 2
    assert answers(DatabaseState.DROPPED) == [TransactionState.ROLLBACK] * 2
    assert answers(DatabaseState.OPEN) == [TransactionState.UNKNOWN] * 2


@in_virtual_time
async def test_who_is_unsure_says_so_for_some_times() -> None:
    assert answers(DatabaseState.KEPT, unsure=1) == [
        TransactionState.UNKNOWN,
        TransactionState.COMMIT,
    ]


@in_virtual_time
async def test_of_some_nobody_ever_says() -> None:
    assert answers(DatabaseState.KEPT, TransactionCourse.NEVER) == [TransactionState.UNKNOWN] * 2


@pytest.mark.parametrize("by_time", [True, False])
@in_virtual_time
async def test_a_delivery_time_is_given_as_one_or_as_a_delay(by_time: bool) -> None:
    loop = this_loop()
    producer = TransactionalProducer(
        plan(0), Hosts(loop), TimedHistory(loop.clock.now_ms), loop.clock
    )
    operation = SendOperation(
        name="e1", at_ms=0, kind=SendKind.TIMER, failures=0, tag="a", weight=1,
        wait_ms=1_500, by_time=by_time,
    )  # fmt: skip
    made = producer._message(operation, loop.clock.now_ms())
    assert (made.deliver_at is not None, made.delay is not None) == (by_time, not by_time)
    if made.deliver_at:
        assert round(made.deliver_at.timestamp() * 1_000) == loop.clock.now_ms() + 1_500
