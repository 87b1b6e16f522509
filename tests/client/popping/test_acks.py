"""Acknowledgements, retries and extensions of popped messages."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from roquet.client.config import ConsumerConfig
from roquet.client.connection.background import BackgroundTasks
from roquet.client.connection.identity import ClientIdentity
from roquet.client.connection.session import Session
from roquet.client.metrics import HANDLED, ClientMetrics
from roquet.client.popping.acks import PopAcks
from roquet.client.popping.pop_batch import PopBatch, PoppedMessage, PopReplyParser, PopTarget
from roquet.client.reading.message import (
    give_up,
    owner_of,
    release,
    retry_later,
    settle,
)
from roquet.model.errors import CallRefused, CallTimeout
from roquet.model.topic import SubscriptionGroup
from roquet.testing.clock import this_loop
from roquet.wire.call import Reply
from roquet.wire.calls.admin.topic import GetGroup
from roquet.wire.calls.pop import (
    Ack,
    BatchAck,
    ChangeInvisible,
    ChangeInvisibleReply,
    PopReply,
    decode_acks,
    decode_bits,
)
from roquet.wire.calls.send import SendBack
from roquet.wire.fastjson import codec
from roquet.wire.receipt_handle import decode_receipt_handle
from roquet.wire.records import record

HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))


class FakeSession:
    """A session whose broker gives the answers that a test sets."""

    spans = None
    settle_span: Any = Session.settle_span

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.answers: dict[type, Callable[[Any], Any]] = {}
        self.background = BackgroundTasks()
        self.identity = ClientIdentity(
            ConsumerConfig(clock=this_loop().clock, client_ip="127.0.0.1")
        )
        self.routes = self
        self.doubts = 0

    def invalidate(self) -> None:
        self.doubts += 1

    async def call(self, broker: str, call: Any, timeout_ms: int = 3_000) -> Any:
        self.calls.append(call)
        answer = self.answers.get(type(call))
        return Reply() if answer is None else answer(call)

    def of(self, kind: type) -> list[Any]:
        return [call for call in self.calls if type(call) is kind]


def group(**fields: Any) -> Callable[[Any], Reply]:
    settings = SubscriptionGroup(group_name="g", **fields)
    return lambda _: Reply(body=codec.dumps(settings))


def made(fake: FakeSession, **settings: Any) -> PopAcks:
    session: Any = fake
    return PopAcks(session, ConsumerConfig(clock=this_loop().clock, **settings), "g")


def messages(acks: PopAcks, count: int, times: int = 0) -> list[PoppedMessage]:
    target = PopTarget("b", "t", "g", acks, this_loop().clock.monotonic_ms)
    reply = PopReply(pop_time=1_000, invisible_time=60_000, revive_qid=3, start_offset_info="0 0 0")
    raw = [
        record.pack(0, 0, n, n * 100, 0, 1, HOST, 2, HOST, times, 0, b"x", b"t", b"")
        for n in range(count)
    ]
    return PopReplyParser(target, reply).messages([record.decode(one) for one in raw])


def bits(call: BatchAck) -> list[int]:
    return [decode_bits(ack.bits) for ack in decode_acks(call.body).acks]


async def test_acknowledgements_travel_together() -> None:
    fake = FakeSession()
    acks = made(fake)
    for message in messages(acks, 5):
        settle(message)
    await acks.close(1_000)
    (call,) = fake.calls
    assert bits(call) == [0b11111]


async def test_unanswered_acknowledgements_are_sent_again() -> None:
    fake = FakeSession()
    acks = made(fake)
    failures = [CallTimeout("no answer")]

    def answer(call: Any) -> Reply:
        if failures:
            raise failures.pop()
        return Reply()

    fake.answers[BatchAck] = answer
    for message in messages(acks, 2):
        settle(message)
    await this_loop().clock.sleep(2_000)
    assert [bits(call) for call in fake.of(BatchAck)] == [[0b11], [0b11]]
    assert fake.doubts == 1


async def test_expired_acknowledgements_are_not_sent_again() -> None:
    fake = FakeSession()
    acks = made(fake)

    def answer(call: Any) -> Reply:
        raise CallTimeout("no answer")

    fake.answers[BatchAck] = answer
    settle(messages(acks, 1)[0])
    await this_loop().clock.sleep(90_000)
    assert 55 < len(fake.calls) < 62


async def test_a_broker_without_batches_gets_single_acknowledgements() -> None:
    fake = FakeSession()
    acks = made(fake)

    def answer(call: Any) -> Reply:
        raise CallRefused(3, "request type 200151 not supported")

    fake.answers[BatchAck] = answer
    first, _, third = messages(acks, 3)
    settle(first)
    settle(third)
    await acks.close(1_000)
    assert [ack.extra_info for ack in fake.of(Ack)] == [
        "0 1000 60000 3 0 b 0 0", "0 1000 60000 3 0 b 0 2",
    ]  # fmt: skip
    settle(messages(acks, 1)[0])
    await acks.close(1_000)
    assert len(fake.of(BatchAck)) == 1


async def test_a_message_that_failed_comes_again_after_the_groups_back_off() -> None:
    fake = FakeSession()
    acks = made(fake)
    policy = {
        "type": "EXPONENTIAL",
        "exponentialRetryPolicy": {"initial": 700, "max": 9_000, "multiplier": 2},
    }
    fake.answers[GetGroup] = group(group_retry_policy=policy)
    fake.answers[ChangeInvisible] = lambda _: ChangeInvisibleReply()
    for times in range(3):
        retry_later(messages(acks, 1, times)[0])
    retry_later(messages(acks, 1)[0], 5)
    retry_later(messages(acks, 1)[0], 0)
    await acks.close(1_000)
    asked = [call.invisible_time for call in fake.of(ChangeInvisible)]
    assert asked == [700, 1_400, 2_800, 5, 1]


@pytest.mark.parametrize(
    ("settings", "in_group", "times", "buried"),
    [({}, 2, 1, 0), ({}, 2, 2, 1), ({"retries_max": 5}, 2, 4, 0), ({"retries_max": 5}, 2, 5, 1)],
)
async def test_after_the_last_try_it_is_a_dead_letter_and_only_then_acknowledged(
    settings: dict[str, Any], in_group: int, times: int, buried: int
) -> None:
    fake = FakeSession()
    acks = made(fake, **settings)
    fake.answers[GetGroup] = group(retry_max_times=in_group)
    retry_later(messages(acks, 1, times)[0], 100)
    await acks.close(1_000)
    assert [call.delay_level for call in fake.of(SendBack)] == [-1] * buried
    assert len(fake.of(BatchAck)) == buried
    assert len(fake.of(ChangeInvisible)) == 1 - buried


async def test_a_message_that_is_released_on_its_last_try_is_no_dead_letter() -> None:
    fake, metrics = FakeSession(), ClientMetrics()
    acks = made(fake, metrics=metrics)
    fake.answers[GetGroup] = group(retry_max_times=2)
    release(messages(acks, 1, times=2)[0])
    await acks.close(1_000)
    (change,) = fake.calls
    assert (change.invisible_time, change.suspend) == (1, True)
    assert not [name for name in metrics.snapshot() if name.startswith(HANDLED.name)]


async def test_a_try_that_ends_as_a_dead_letter_counts_once_as_failed() -> None:
    metrics = ClientMetrics()
    acks = made(FakeSession(), metrics=metrics)
    first, second = messages(acks, 2)
    give_up(first)
    settle(second)
    await acks.close(1_000)
    counts = {n: v for n, v in metrics.snapshot().items() if n.startswith(HANDLED.name)}
    assert {name.split('result="')[1][:6]: count for name, count in counts.items()} == {
        "failed": 1,
        'ok",to': 1,
    }


async def test_a_dead_letter_that_was_not_stored_is_not_acknowledged() -> None:
    fake = FakeSession()
    acks = made(fake)

    def refuse(call: Any) -> Reply:
        raise CallRefused(1, "no")

    fake.answers |= {SendBack: refuse, GetGroup: refuse}
    give_up(messages(acks, 1)[0])
    await acks.close(1_000)
    assert fake.of(BatchAck) == []
    assert await acks.limit("b") == 16


async def test_extending_gives_the_message_another_handle() -> None:
    fake = FakeSession()
    acks = made(fake)
    answers = [
        ChangeInvisibleReply(pop_time=9_000, invisible_time=70_000, revive_qid=5),
        ChangeInvisibleReply(code=208, remark="too late"),
    ]
    fake.answers[ChangeInvisible] = lambda _: answers.pop(0)
    _, message = messages(acks, 2)
    await message.extend(70_000)
    batch = owner_of(message)
    assert isinstance(batch, PopBatch)
    assert batch.handle.text() == "1 9000 70000 5 0 b 0 1"
    with pytest.raises(CallRefused, match="too late"):
        await message.extend(70_000)


class SlowBroker(FakeSession):
    """Extends a message after a second, or not."""

    def __init__(self, extended: ChangeInvisibleReply) -> None:
        super().__init__()
        self.answers[ChangeInvisible] = lambda _: extended

    async def call(self, broker: str, call: Any, timeout_ms: int = 3_000) -> Any:
        if type(call) is ChangeInvisible:
            await this_loop().clock.sleep(1_000)
        return await super().call(broker, call, timeout_ms)


EXTENDED = ChangeInvisibleReply(pop_time=9_000, invisible_time=70_000, revive_qid=5)
TOO_LATE = ChangeInvisibleReply(code=208, remark="too late")


async def test_an_acknowledgement_during_an_extension_names_the_new_handle() -> None:
    fake = SlowBroker(EXTENDED)
    acks = made(fake)
    first, second = messages(acks, 2)
    extension = asyncio.create_task(second.extend(70_000))
    await asyncio.sleep(0.5)
    await first.ack()
    await second.ack()
    await second.ack()
    await second.extend(80_000)
    await extension
    await acks.close(1_000)
    handles = [
        (ack.pop_ms, ack.start, decode_bits(ack.bits))
        for call in fake.of(BatchAck)
        for ack in decode_acks(call.body).acks
    ]
    assert handles == [(1_000, 0, 0b1), (9_000, 1, 0b1)]
    assert len(fake.of(ChangeInvisible)) == 1, "a settled message is not extended"


@pytest.mark.parametrize(("extended", "pop_ms"), [(EXTENDED, 9_000), (TOO_LATE, 1_000)])
async def test_a_failure_during_an_extension_names_the_handle_of_its_end(
    extended: ChangeInvisibleReply, pop_ms: int
) -> None:
    fake = SlowBroker(extended)
    acks = made(fake)
    (message,) = messages(acks, 1)
    extension = asyncio.create_task(message.extend(70_000))
    await asyncio.sleep(0.5)
    await message.nack(3_000)
    with nullcontext() if extended is EXTENDED else pytest.raises(CallRefused, match="too late"):
        await extension
    await acks.close(5_000)
    _, changed = fake.of(ChangeInvisible)
    handle = decode_receipt_handle(changed.extra_info)
    assert (handle.pop_ms, changed.invisible_time) == (pop_ms, 3_000)


async def test_extensions_and_a_suspension_made_at_once_follow_each_other() -> None:
    fake = SlowBroker(EXTENDED)
    (message,) = messages(made(fake), 1)
    await asyncio.gather(message.extend(70_000), message.extend(70_000), message.suspend(5_000))
    changes = fake.of(ChangeInvisible)
    pops = [decode_receipt_handle(call.extra_info).pop_ms for call in changes]
    assert pops == [1_000, 9_000, 9_000]
    assert [call.suspend for call in changes] == [None, None, True]


async def test_a_refused_acknowledgement_delays_no_other() -> None:
    fake = FakeSession()
    acks = made(fake)

    def without_batches(call: Any) -> Reply:
        raise CallRefused(3, "request type 200151 not supported")

    def answer(call: Ack) -> Reply:
        if call.offset == 1:
            raise CallRefused(208, "offset is illegal")
        return Reply()

    fake.answers[BatchAck] = without_batches
    fake.answers[Ack] = answer
    for message in messages(acks, 3):
        settle(message)
    await this_loop().clock.sleep(10_000)
    assert [call.offset for call in fake.of(Ack)] == [0, 1, 2]
