"""Commits of half messages are retried, and the outcome of each is known."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from roquet.model.errors import (
    CallError,
    CallRefused,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    RecordError,
)
from roquet.model.queue import MessageQueue
from roquet.model.route import BrokerData
from roquet.rules.replication.acknowledgement import NOT_ENOUGH_REMARK
from roquet.rules.transaction import COMMIT, ROLL_BACK
from roquet.spark.sink.commit_half_messages import (
    END_NOT_DONE,
    CommitOutcome,
    HalfMessageCommitter,
    HalfMessageRef,
)
from roquet.testing.clock import run, this_loop
from roquet.wire.call import Call, Reply
from roquet.wire.calls.query import QueryByKey, ViewMessage
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.calls.transaction import EndTransaction
from roquet.wire.codes import ResponseCode
from roquet.wire.records.record import encode_properties, pack

LATE = CallRefused(ResponseCode.ILLEGAL_OPERATION, "too late")
BUSY = CallRefused(ResponseCode.SYSTEM_BUSY, "busy")
ENDED = CallRefused(ResponseCode.SYSTEM_ERROR, "has ended before")
SHORT = CallRefused(ResponseCode.SYSTEM_ERROR, NOT_ENOUGH_REMARK)
DISCARDED = HalfMessageRef(1, "orders", "a", 1, 51, 100, "U1", False, True)


def half(number: int, *, ordered: bool = False) -> HalfMessageRef:
    return HalfMessageRef(
        number, "orders", "a", number % 2, 50 + number, 100 * number, f"U{number}", ordered, False
    )


class FakeNetwork:
    """Routes and connections in one: each half message has its own list of answers."""

    def __init__(self, answers: dict[int, list[CallError]] | None = None) -> None:
        self.answers = answers or {}
        self.calls: list[EndTransaction] = []
        self.called_ms: list[int] = []
        self.refreshed = 0

    def leader(self, broker: str) -> str:
        return f"{broker}:1"

    async def refresh(self, _topic: str) -> None:
        self.refreshed += 1

    async def call(self, _address: str, call: EndTransaction, _timeout_ms: int) -> Reply:
        self.calls.append(call)
        self.called_ms.append(this_loop().clock.monotonic_ms())
        await asyncio.sleep(0)
        if answers := self.answers.get(call.half_offset - 50):
            raise answers.pop(0)
        return Reply()

    @property
    def committed(self) -> list[int]:
        return [call.half_offset - 50 for call in self.calls]

    @property
    def pauses_ms(self) -> list[int]:
        return [after - before for before, after in pairwise(self.called_ms)]


class RecordKeeper(FakeNetwork):
    """A broker with the record of a discarded half message: gives these answers, then all is well.

    None is an answer of success.
    """

    def __init__(self, *answers: CallError | Reply | None, is_stand_in: bool = False) -> None:
        super().__init__()
        self.next_answers = list(answers)
        self.is_stand_in = is_stand_in
        self.kinds: list[type[Call[Any]]] = []

    def brokers_of(self, _topic: str) -> list[BrokerData]:
        return [BrokerData(cluster="c", broker_name="a", enable_acting_master=True)]

    def writable(self, _topic: str) -> list[MessageQueue] | None:
        return None if self.is_stand_in else [MessageQueue("orders", "a", 0)]

    async def call(self, _address: str, call: Call[Any], _timeout_ms: int) -> Any:
        self.kinds.append(type(call))
        answer = self.next_answers.pop(0) if self.next_answers else None
        if isinstance(answer, CallError):
            raise answer
        if answer is None and isinstance(call, ViewMessage):
            host, properties = bytes(8), encode_properties({"UNIQ_KEY": "U1"})
            body = pack(0, 0, 0, 100, 0, 1, host, 2, host, 0, 0, b"x", b"orders", properties)
            return Reply(body=body)
        return answer or SendReply()


def work(
    net: FakeNetwork, what: str, halves: list[HalfMessageRef], timeout_ms: int = 60_000
) -> Any:
    """The outcome; pauses pass in virtual time."""

    async def main() -> Any:
        clock = this_loop().clock
        made = HalfMessageCommitter(net, net, "g", timeout_ms, clock)  # type: ignore[arg-type]
        return await getattr(made, what)(halves)

    return run(main())


def test_an_end_request_names_its_half_message() -> None:
    net = FakeNetwork()
    assert work(net, "commit", [half(3)]) == {3: CommitOutcome.DONE}
    (call,) = net.calls
    assert (call.topic, call.producer_group, call.half_offset, call.position) == (
        "orders", "g", 53, 300,
    )  # fmt: skip
    assert (call.commit_or_rollback, call.from_transaction_check) == (COMMIT, False)
    assert (call.msg_id, call.broker_name) == ("U3", "a")


def test_each_reply_has_an_outcome() -> None:
    net = FakeNetwork(
        {
            0: [BUSY, ConnectFailed("away")],
            1: [ENDED],
            2: [ConnectionLost("gone")],
            3: [CallTimeout("slow")],
            4: [LATE],
            5: [LATE, ENDED],
        }
    )
    assert work(net, "commit", [half(number) for number in range(6)]) == {
        0: CommitOutcome.DONE, 1: CommitOutcome.REFUSED, 2: CommitOutcome.UNKNOWN,
        3: CommitOutcome.UNKNOWN, 4: CommitOutcome.DONE, 5: CommitOutcome.REFUSED,
    }  # fmt: skip
    assert (net.committed.count(2), net.committed.count(3)) == (1, 1), "replies were lost"
    late = [call.from_transaction_check for call in net.calls if call.half_offset == 54]
    assert late == [False, True]


@pytest.mark.parametrize("code", sorted(END_NOT_DONE))
def test_a_commit_that_certainly_changed_nothing_is_sent_again(code: int) -> None:
    net = FakeNetwork({1: [CallRefused(code)] * 9})
    assert work(net, "commit", [half(1)]) == {1: CommitOutcome.DONE}
    assert net.committed == [1] * 10
    assert net.pauses_ms == [20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]


FINAL = set(ResponseCode) - END_NOT_DONE - {ResponseCode.ILLEGAL_OPERATION, ResponseCode.SUCCESS}


@pytest.mark.parametrize("code", sorted(FINAL))
def test_a_commit_that_may_have_been_done_is_never_sent_again(code: int) -> None:
    net = FakeNetwork({1: [CallRefused(code)]})
    assert work(net, "commit", [half(1)]) == {1: CommitOutcome.REFUSED}
    assert net.committed == [1]


def test_a_name_server_that_is_away_for_a_moment_is_no_error() -> None:
    class Nowhere(FakeNetwork):
        async def refresh(self, topic: str) -> None:
            await super().refresh(topic)
            if self.refreshed == 1:
                raise ConnectFailed("no name server answered")

        def leader(self, broker: str) -> str:
            if self.refreshed < 2:
                raise ConnectFailed("no address")
            return super().leader(broker)

    assert work(Nowhere(), "commit", [half(1)]) == {1: CommitOutcome.DONE}


def test_a_busy_broker_is_asked_again_for_a_discarded_half_message() -> None:
    net = RecordKeeper(BUSY, ENDED, ENDED)
    with pytest.raises(RecordError, match="no longer has the half message at 100"):
        work(net, "commit", [DISCARDED])
    assert net.kinds == [ViewMessage, ViewMessage, QueryByKey]


def test_a_discarded_half_message_that_a_stand_in_lacks_is_waited_for() -> None:
    """The master that is away may have it."""
    net = RecordKeeper(ENDED, ENDED, is_stand_in=True)
    assert work(net, "commit", [DISCARDED]) == {1: CommitOutcome.DONE}
    with pytest.raises(ConnectFailed, match="the master of 'a' is away"):
        work(RecordKeeper(ENDED, ENDED, is_stand_in=True), "commit", [DISCARDED], timeout_ms=-1)


def test_a_commit_waits_for_enough_logs_in_sync() -> None:
    net = FakeNetwork({1: [SHORT] * 9})
    assert work(net, "commit", [half(1)]) == {1: CommitOutcome.DONE}
    assert net.committed == [1] * 10
    with pytest.raises(CallRefused, match=NOT_ENOUGH_REMARK):
        work(FakeNetwork({1: [SHORT]}), "commit", [half(1)], timeout_ms=-1)


def test_a_discarded_row_waits_for_enough_logs_in_sync() -> None:
    net = RecordKeeper(*[None, SHORT, SHORT] * 9)
    assert work(net, "commit", [DISCARDED]) == {1: CommitOutcome.DONE}
    assert net.kinds.count(Send) == 10


def test_a_discarded_row_that_is_sent_again_less_durably_than_promised_is_looked_for() -> None:
    net = RecordKeeper(None, None, SendReply(code=ResponseCode.FLUSH_SLAVE_TIMEOUT))
    assert work(net, "commit", [DISCARDED]) == {1: CommitOutcome.UNKNOWN}


def test_a_broker_that_stays_away_is_an_error() -> None:
    with pytest.raises(ConnectFailed, match="away"):
        work(
            FakeNetwork({1: [ConnectFailed("away")] * 9}),
            "commit",
            [half(0), half(1)],
            timeout_ms=-1,
        )


def test_ordered_commits_stop_at_an_unknown_outcome() -> None:
    net = FakeNetwork({2: [ConnectionLost("gone")]})
    halves = [half(number, ordered=True) for number in range(8)]
    outcomes = work(net, "commit", halves)
    assert {number for number, outcome in outcomes.items() if outcome is CommitOutcome.DONE} == {
        0, 1, 3, 5, 7,
    }  # fmt: skip
    assert outcomes[2] is CommitOutcome.UNKNOWN
    assert {outcomes[number] for number in (4, 6)} == {CommitOutcome.NOT_ASKED}
    assert [number for number in net.committed if number % 2] == [1, 3, 5, 7]


def test_a_roll_back_sends_one_request_per_half_message_and_ignores_errors() -> None:
    net = FakeNetwork({0: [ENDED], 1: [ConnectFailed("away")]})
    work(net, "roll_back", [half(number) for number in range(300)])
    assert sorted(net.committed) == list(range(300))
    assert {call.commit_or_rollback for call in net.calls} == {ROLL_BACK}
