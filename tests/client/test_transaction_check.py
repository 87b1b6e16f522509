"""A producer's answers to a broker's questions about half messages."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from roquet.client import transaction_check
from roquet.client.transaction_check import (
    TransactionChecker,
    TransactionState,
    call_user_function,
    to_transaction_state,
)
from roquet.model.errors import RecordError, UsageError
from roquet.model.message import StoredMessage
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.transaction import CheckTransactionState, EndTransaction
from roquet.wire.records.record import pack

pytestmark = pytest.mark.virtual_time(False)

HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))


class FakePeer:
    """A broker's connection that records what it is sent."""

    def __init__(self) -> None:
        self.told: list[EndTransaction] = []

    def oneway(self, call: EndTransaction) -> None:
        self.told.append(call)


def question(group: str = "pg", body: bytes = b"m") -> CheckTransactionState:
    text = f"PGROUP\x01{group}\x02UNIQ_KEY\x01key\x02KEYS\x01k1\x02".encode()
    record = pack(3, 9, 7, 700, 0, 5, HOST, 6, HOST, 0, 0, body, b"orders", text)
    return CheckTransactionState(
        body=record, topic="RMQ_SYS_TRANS_HALF_TOPIC", half_offset=7, position=700,
        msg_id="key", transaction_id="key", broker_name="broker-a",
    )  # fmt: skip


async def answered(check: Callable[[StoredMessage], Any], **fields: Any) -> list[EndTransaction]:
    peer: Any = FakePeer()
    await TransactionChecker(check, "pg").answer(question(**fields), peer)
    ends: list[EndTransaction] = peer.told
    return ends


@pytest.mark.parametrize(
    ("state", "number"),
    [(TransactionState.COMMIT, 8), (TransactionState.ROLLBACK, 12), (TransactionState.UNKNOWN, 0)],
)
async def test_the_answer_repeats_what_a_broker_asks(state: TransactionState, number: int) -> None:
    seen: list[StoredMessage] = []

    async def check(message: StoredMessage) -> TransactionState:
        seen.append(message)
        return state

    (call,) = await answered(check)
    assert call == EndTransaction(
        topic="orders", producer_group="pg", half_offset=7, position=700,
        commit_or_rollback=number, from_transaction_check=True, msg_id="key",
        transaction_id="key", broker_name="broker-a",
    )  # fmt: skip
    (message,) = seen
    assert (message.topic, message.queue_id, message.body, message.key) == ("orders", 3, b"m", "k1")
    assert message.broker_name == "broker-a"


async def test_a_plain_function_is_called_in_a_thread() -> None:
    threads: list[threading.Thread] = []

    def check(_: StoredMessage) -> TransactionState:
        threads.append(threading.current_thread())
        return TransactionState.COMMIT

    (call,) = await answered(check)
    assert call.commit_or_rollback == 8
    assert threads[0] is not threading.current_thread()
    (call,) = await answered(lambda message: asyncio.sleep(0, TransactionState.ROLLBACK))
    assert call.commit_or_rollback == 12, "what it gives may have to be awaited"


@pytest.mark.parametrize("said", [None, True, "COMMIT", 8])
async def test_no_clear_answer_is_none(said: object, caplog: pytest.LogCaptureFixture) -> None:
    (call,) = await answered(lambda _: said)
    assert call.commit_or_rollback == 0
    assert ("no TransactionState" in caplog.text) == (said is not None)


async def test_a_check_that_raises_has_not_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def check(_: StoredMessage) -> TransactionState:
        raise LookupError("which order?")

    (call,) = await answered(check)
    assert call.commit_or_rollback == 0
    assert "which order?" in caplog.text


async def test_questions_for_others_are_not_answered(caplog: pytest.LogCaptureFixture) -> None:
    def check(_: StoredMessage) -> TransactionState:
        raise AssertionError

    assert await answered(check, group="other") == []
    assert "for another group" in caplog.text
    peer: Any = FakePeer()
    with pytest.raises(RecordError):
        await TransactionChecker(check, "pg").answer(
            CheckTransactionState(half_offset=1, position=2), peer
        )


@in_virtual_time
async def test_only_so_many_are_answered_at_one_time_and_only_so_many_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transaction_check, "CONCURRENT_CHECKS_MAX", 2)
    monkeypatch.setattr(transaction_check, "CHECKS_MAX", 5)
    running = most = 0

    async def check(_: StoredMessage) -> TransactionState:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1
        return TransactionState.COMMIT

    peer: Any = FakePeer()
    answers = TransactionChecker(check, "pg")
    await asyncio.gather(*(answers.answer(question(), peer) for _ in range(9)))
    assert (most, len(peer.told)) == (2, 5)
    assert caplog.text.count("checks are dropped") == 1
    await answers.answer(question(), peer)
    assert len(peer.told) == 6


@in_virtual_time
async def test_checks_that_hang_do_not_hold_up_others(caplog: pytest.LogCaptureFixture) -> None:
    hanging = iter([True] * transaction_check.CONCURRENT_CHECKS_MAX)

    async def check(_: StoredMessage) -> TransactionState:
        if next(hanging, False):
            await asyncio.sleep(1_000_000)
        return TransactionState.COMMIT

    peer: Any = FakePeer()
    answers = TransactionChecker(check, "pg")
    asked = [
        answers.answer(question(), peer) for _ in range(transaction_check.CONCURRENT_CHECKS_MAX + 1)
    ]
    await asyncio.gather(*asked)
    states = [call.commit_or_rollback for call in peer.told]
    assert (states.count(0), states.count(8)) == (transaction_check.CONCURRENT_CHECKS_MAX, 1)
    assert "took more than 60000 ms: asked again later" in caplog.text


async def test_only_so_many_threads_may_hang(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transaction_check, "CHECK_LIMIT_MS", 1)
    monkeypatch.setattr(transaction_check, "THREADS_MAX", 3)
    go_on = threading.Event()
    peer: Any = FakePeer()
    answers = TransactionChecker(lambda _: go_on.wait(60), "pg")  # type: ignore[arg-type,return-value]
    for _ in range(5):
        await answers.answer(question(), peer)
    assert [call.commit_or_rollback for call in peer.told] == [0, 0, 0]
    assert "3 threads are at work" in caplog.text
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "roquet-check":
            thread.join(10)
    await answers.answer(question(), peer)
    assert len(peer.told) == 4


@in_virtual_time
async def test_a_producer_that_closes_answers_nothing_more() -> None:
    async def check(_: StoredMessage) -> TransactionState:
        await asyncio.sleep(1)
        return TransactionState.COMMIT

    peer: Any = FakePeer()
    answers = TransactionChecker(check, "pg")
    task = asyncio.create_task(answers.answer(question(), peer))
    await asyncio.sleep(0.5)
    answers.close()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert peer.told == []


def test_a_check_is_a_function() -> None:
    with pytest.raises(UsageError, match="a check is a function, not str"):
        TransactionChecker("yes", "pg")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a check is called with one argument, the message"):
        TransactionChecker(lambda: None, "pg")  # type: ignore[arg-type,misc]


def test_what_is_said_is_a_state_or_nothing() -> None:
    assert to_transaction_state(TransactionState.ROLLBACK, "id") is TransactionState.ROLLBACK
    assert (
        to_transaction_state(None, "id")
        is to_transaction_state(8, "id")
        is TransactionState.UNKNOWN
    )


async def test_an_object_may_be_called_like_a_coroutine_function() -> None:
    class Check:
        async def __call__(self, number: int) -> int:
            return number + 1

    assert await call_user_function(Check(), 1) == 2
