"""TransactionalProducer: answers to checks come from its database."""

import msgspec
import pytest

from roquet.client.transaction_check import TransactionState
from roquet.model.message import StoredMessage
from roquet.testing.clock import this_loop
from simulation.hosts import Hosts
from simulation.timed.history import DatabaseState, TimedHistory
from simulation.timed.scenario import (
    SendKind,
    SendOperation,
    TransactionCourse,
    draw_scenario,
)
from simulation.timed.transactional_producer import TransactionalProducer

pytestmark = pytest.mark.virtual_time


class FakeHalfMessage:
    """A half message, as a broker's check shows it."""

    body = b"e1"


def producer_of(operation: SendOperation) -> tuple[TransactionalProducer, TimedHistory]:
    loop = this_loop()
    scenario = msgspec.structs.replace(draw_scenario(0), operations=(operation,))
    history = TimedHistory(loop.clock.monotonic_ms)
    return TransactionalProducer(scenario, Hosts(loop), history, loop.clock), history


def answers(
    state: DatabaseState,
    course: TransactionCourse = TransactionCourse.COMMIT_WHEN_CHECKED,
    undecided: int = 0,
) -> list[TransactionState]:
    """Answers to two checks."""
    operation = SendOperation(
        name="e1", at_ms=0, kind=SendKind.TRANSACTION, failures=0, tag="a", weight=1,
        course=course, undecided_checks=undecided,
    )  # fmt: skip
    producer, history = producer_of(operation)
    history.write_database("e1", state, "10.0.4.1")
    half: StoredMessage = FakeHalfMessage()  # type: ignore[assignment]
    return [producer.check("10.0.4.1", half) for _ in range(2)]


async def test_a_check_is_answered_from_the_database() -> None:
    assert answers(DatabaseState.COMMITTED) == [TransactionState.COMMIT] * 2
    assert answers(DatabaseState.ROLLED_BACK) == [TransactionState.ROLLBACK] * 2
    assert answers(DatabaseState.OPEN) == [TransactionState.UNKNOWN] * 2


async def test_some_checks_are_answered_before_the_state_is_known() -> None:
    assert answers(DatabaseState.COMMITTED, undecided=1) == [
        TransactionState.UNKNOWN,
        TransactionState.COMMIT,
    ]


async def test_some_transactions_are_never_decided() -> None:
    assert (
        answers(DatabaseState.COMMITTED, TransactionCourse.NEVER_DECIDE)
        == [TransactionState.UNKNOWN] * 2
    )


@pytest.mark.parametrize("by_time", [True, False])
async def test_a_delivery_time_is_given_as_one_or_as_a_delay(by_time: bool) -> None:
    clock = this_loop().clock
    operation = SendOperation(
        name="e1", at_ms=0, kind=SendKind.TIMER, failures=0, tag="a", weight=1,
        wait_ms=1_500, by_time=by_time,
    )  # fmt: skip
    message = producer_of(operation)[0].message(operation)
    assert (message.deliver_at is not None, message.delay is not None) == (by_time, not by_time)
    if message.deliver_at:
        assert round(message.deliver_at.timestamp() * 1_000) == clock.now_ms() + 1_500
