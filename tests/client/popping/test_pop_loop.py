import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.client.popping.test_acks import FakeSession

from roquet.client.config import ConsumerConfig
from roquet.client.popping.acks import PopAcks
from roquet.client.popping.pop_batch import PopTarget
from roquet.client.popping.pop_loop import PopLoop
from roquet.client.popping.prefetch_buffer import PrefetchBuffer
from roquet.client.reading.pull_request import SubscriptionFilter
from roquet.model.errors import ConnectFailed, RecordError
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.call import Reply
from roquet.wire.calls.pop import BatchAck, ChangeInvisible, Pop, PopReply, decode_acks
from roquet.wire.calls.send import SendBack
from roquet.wire.records import record

pytestmark = pytest.mark.usefixtures("form")

HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))


class PoppingSession(FakeSession):
    """A session whose broker returns `replies`, and then keeps pops waiting."""

    def __init__(self, *replies: Any) -> None:
        super().__init__()
        self.replies = list(replies)
        self.membership = self
        self.times: list[float] = []

    def trigger(self) -> None:
        """Nothing."""

    async def call(self, broker: str, call: Any, timeout_ms: int = 3_000) -> Any:
        await super().call(broker, call)
        if not isinstance(call, Pop):
            return Reply()
        self.times.append(asyncio.get_running_loop().time())
        if not self.replies:
            await asyncio.sleep(10**6)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def found(*tags: str, times: int = 0, flags: Sequence[int] = (0, 0, 0)) -> PopReply:
    raw = [
        record.pack(
            0, 0, n, n * 100, flags[n], 1, HOST, 2, HOST, times, 0,
            tag.encode(errors="surrogateescape"), b"t",
            f"TAGS\x01{tag}\x02".encode(errors="surrogateescape"),
        )
        for n, tag in enumerate(tags)
    ]  # fmt: skip
    return PopReply(
        pop_time=1_000, invisible_time=60_000, start_offset_info="0 0 0", body=b"".join(raw)
    )


NOTHING = PopReply(code=210)


def with_pop_loop(
    *replies: Any, tags: str = "*", starts_first: bool = False, **settings: Any
) -> Callable[[Callable[[PoppingSession, PrefetchBuffer], Any]], None]:
    """Run a pop loop for five virtual seconds, then check."""

    def check(look: Callable[[PoppingSession, PrefetchBuffer], Any]) -> None:
        @in_virtual_time
        async def go() -> None:
            fake: Any = PoppingSession(*replies)
            config = ConsumerConfig(clock=this_loop().clock, **settings)
            buffer = PrefetchBuffer(config.clock, 32)
            acks = PopAcks(fake, config, "g")
            target = PopTarget("b", "t", "g", acks, config.clock.monotonic_ms)
            pop_loop = PopLoop(
                target, SubscriptionFilter.by_tags("t", tags, 1), buffer, fake, config, acks,
                starts_first=starts_first,
            )  # fmt: skip
            pop_loop.start(fake.background)
            await asyncio.sleep(5)
            pop_loop.leave()
            look(fake, buffer)
            await fake.background.close()

        go()

    return check


async def test_messages_popped_after_the_leave_are_released_and_popping_ends() -> None:
    answers: asyncio.Queue[PopReply] = asyncio.Queue()
    fake: Any = PoppingSession()
    call = fake.call

    async def popped_later(broker: str, asked: Any, timeout_ms: int = 3_000) -> Any:
        if isinstance(asked, Pop):
            fake.calls.append(asked)
            return await answers.get()
        return await call(broker, asked, timeout_ms)

    fake.call = popped_later
    config = ConsumerConfig(clock=this_loop().clock)
    buffer = PrefetchBuffer(config.clock, 32)
    acks = PopAcks(fake, config, "g")
    target = PopTarget("b", "t", "g", acks, config.clock.monotonic_ms)
    pop_loop = PopLoop(
        target, SubscriptionFilter.by_tags("t", "a", 1), buffer, fake, config, acks,
        starts_first=False,
    )  # fmt: skip
    pop_loop.start(fake.background)
    await asyncio.sleep(1)
    pop_loop.leave()
    answers.put_nowait(found("a", "b"))
    answers.put_nowait(found("a"))
    await asyncio.sleep(5)
    assert len(buffer) == 0
    assert [type(one) for one in fake.calls].count(Pop) == 1
    changes = [one for one in fake.calls if isinstance(one, ChangeInvisible)]
    assert [(one.offset, one.invisible_time) for one in changes] == [(0, 1), (1, 1)]
    await fake.background.close()


def test_popped_messages_are_buffered() -> None:
    def look(fake: PoppingSession, buffer: PrefetchBuffer) -> None:
        assert [message.body for message in iter(buffer.pop, None)] == [b"a", b"b"]
        (call,) = fake.calls
        assert (call.queue_id, call.max_msg_nums, call.init_mode) == (-1, 1, 1)

    with_pop_loop(found("a", "b"))(look)


def test_a_new_group_may_begin_at_the_oldest_message() -> None:
    with_pop_loop(starts_first=True)(
        lambda fake, _: [call.init_mode for call in fake.calls] == [0] or 1 / 0
    )


def test_a_tag_with_the_same_hash_is_acknowledged_unseen() -> None:
    def look(fake: PoppingSession, buffer: PrefetchBuffer) -> None:
        assert [message.tag for message in iter(buffer.pop, None)] == ["Aa"]
        (ack,) = [call for call in fake.calls if isinstance(call, BatchAck)]
        assert decode_acks(ack.body).acks[0].bits == "Ag=="

    with_pop_loop(found("Aa", "BB"), tags="Aa")(look)


def test_a_pop_that_failed_is_tried_again_after_a_pause() -> None:
    def look(fake: PoppingSession, buffer: PrefetchBuffer) -> None:
        assert fake.times[:2] == [0.0, 1.0]
        assert len(buffer) == 1

    with_pop_loop(ConnectFailed("gone"), found("a"))(look)


def test_an_empty_answer_that_came_at_once_is_followed_by_a_pause() -> None:
    def look(fake: PoppingSession, buffer: PrefetchBuffer) -> None:
        assert len(fake.times) == 4
        assert fake.times[-1] >= 0.06

    with_pop_loop(NOTHING, NOTHING, NOTHING)(look)


def test_a_message_with_too_many_tries_is_buried_unseen() -> None:
    def look(fake: PoppingSession, buffer: PrefetchBuffer) -> None:
        assert len(buffer) == 0
        assert len([call for call in fake.calls if isinstance(call, SendBack)]) == 1

    with_pop_loop(found("a", times=4), retries_max=3)(look)


def test_an_invalid_pop_reply_does_not_end_the_loop() -> None:
    broken = PopReply(start_offset_info="nonsense", body=found("a").body)

    def look(fake: PoppingSession, buffer: PrefetchBuffer) -> None:
        assert [message.body for message in iter(buffer.pop, None)] == [b"b"]

    with_pop_loop(broken, found("b"))(look)


def test_a_body_that_cannot_be_restored_is_the_fault_of_its_message_alone() -> None:
    def look(fake: PoppingSession, buffer: PrefetchBuffer) -> None:
        first, damaged, last = iter(buffer.pop, None)
        assert (first.body, last.body) == (b"a", b"c")
        with pytest.raises(RecordError, match="zlib body is cut short"):
            assert damaged.body

    with_pop_loop(found("a", "b", "c", flags=(0, 1, 0)))(look)


def test_a_tag_that_is_not_utf_8_is_acknowledged_if_it_is_not_wanted() -> None:
    def look(fake: PoppingSession, buffer: PrefetchBuffer) -> None:
        assert [message.tag for message in iter(buffer.pop, None)] == ["a", "a"]
        (ack,) = [call for call in fake.calls if isinstance(call, BatchAck)]
        assert decode_acks(ack.body).acks[0].bits == "Ag=="

    with_pop_loop(found("a", "\udcff", "a"), tags="a")(look)
