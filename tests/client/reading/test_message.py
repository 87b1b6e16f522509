"""Received messages and their settlement."""

import zlib
from typing import Any

import pytest

from roquet.client.reading.message import (
    DEAD_LETTER,
    InboundMessage,
    MessageContext,
    ReceivedMessage,
    next_try,
    read_records,
    retry_later,
)
from roquet.model.errors import RecordError, UsageError
from roquet.model.moments import utc_time
from roquet.model.queue import MessageQueue
from roquet.wire.records import record

pytestmark = [pytest.mark.virtual_time(False), pytest.mark.usefixtures("form")]

QUEUE = MessageQueue("t", "a", 3)
HOST = bytes((10, 0, 0, 1, 0, 0, 42, 159))


def packed(offset: int, body: bytes, properties: bytes = b"", sys_flag: int = 0) -> bytes:
    return record.pack(
        3, 5, offset, 4096, sys_flag, 11, HOST, 12, HOST, 2, 0, body, b"t", properties
    )


class RecordingOwner:
    """Records how messages were settled."""

    is_held = True

    def __init__(self) -> None:
        self.heard: list[object] = []

    def finish(self, message: InboundMessage) -> None:
        self.heard.append(message.queue_offset)

    def retry(self, message: InboundMessage, delay_ms: int | None) -> None:
        self.heard.append((message.queue_offset, delay_ms))


def received(owner: RecordingOwner, raw: bytes | None = None) -> ReceivedMessage:
    return ReceivedMessage(QUEUE, record.decode(raw or packed(7, b"hello")), owner)


def test_everything_that_is_known_of_it_can_be_read() -> None:
    properties = {
        "UNIQ_KEY": "ID", "KEYS": "a b", "TAGS": "new", "__SHARDINGKEY": "o",
        "_SYS_MSG_PRIORITY_": "3",
    }  # fmt: skip
    raw = packed(7, b"hello", record.encode_properties(properties))
    message = received(RecordingOwner(), raw)
    assert (message.topic, message.broker_name, message.queue_id) == ("t", "a", 3)
    assert (message.queue, message.queue_offset, message.body) == (QUEUE, 7, b"hello")
    assert (message.message_id, message.tag, message.order_key) == ("ID", "new", "o")
    assert (message.keys, message.key) == (("a", "b"), "a")
    assert message.properties == properties
    assert message.priority == 3
    assert (message.flag, message.size, message.position) == (5, len(raw), 4096)
    assert (message.born_ms, message.born_host) == (11, "10.0.0.1:10911")
    assert (message.stored_ms, message.store_host) == (12, "10.0.0.1:10911")
    assert (message.born_at, message.stored_at) == (
        utc_time(message.born_ms), utc_time(message.stored_ms)
    )  # fmt: skip
    assert (message.reconsume_times, message.tries, message.is_held) == (2, 2, True)
    assert repr(message) == "<ReceivedMessage ID t@a:3 offset 7>"


def test_without_a_producers_id_the_brokers_own_names_it() -> None:
    message = received(RecordingOwner())
    assert message.message_id == message.offset_message_id == "0A00000100002A9F0000000000001000"


def test_a_compressed_body_is_restored() -> None:
    assert (
        received(RecordingOwner(), packed(7, zlib.compress(b"hello"), sys_flag=1)).body == b"hello"
    )


def test_a_compressed_body_is_restored_for_whoever_looks() -> None:
    """A thousand may wait for a handler, and each be a hundred times as large as it was pulled."""
    message = received(RecordingOwner(), packed(7, zlib.compress(b"hello"), sys_flag=1))
    assert "body" not in vars(message)
    assert message.body == b"hello"
    retry_later(message, 500)
    again = next_try(message)
    assert "body" not in vars(again)
    assert again.body == b"hello"


async def test_it_is_settled_once() -> None:
    owner = RecordingOwner()
    message = received(owner)
    await message.ack()
    await message.ack()
    await message.nack()
    assert owner.heard == [7]


async def test_a_nack_lets_a_message_come_again() -> None:
    owner = RecordingOwner()
    message = received(owner)
    await message.nack(500)
    again = next_try(message)
    assert (again.tries, message.tries) == (3, 2)
    await message.ack()  # too late: this try has failed
    await again.nack()
    assert owner.heard == [(7, 500), (7, None)]


async def test_a_message_may_be_given_up() -> None:
    owner = RecordingOwner()
    message = received(owner)
    await message.dead_letter()
    await message.nack()
    assert owner.heard == [(7, DEAD_LETTER)]
    with pytest.raises(UsageError, match="delay_ms: -5 is less than 0"):
        await received(owner).nack(-5)


def test_from_a_retry_topic_it_shows_where_it_was_sent() -> None:
    raw = packed(7, b"hello", record.encode_properties({"RETRY_TOPIC": "orders"}))
    retry = MessageQueue("%RETRY%g", "a", 0)
    message = ReceivedMessage(retry, record.decode(raw), RecordingOwner())
    assert (message.topic, message.queue.topic) == ("orders", "%RETRY%g")
    assert (
        ReceivedMessage(retry, record.decode(packed(7, b"x")), RecordingOwner()).topic == "%RETRY%g"
    )
    assert ReceivedMessage(QUEUE, record.decode(raw), RecordingOwner()).topic == "t"


def test_the_stored_body_stays_compressed() -> None:
    compressed = zlib.compress(b"hello")
    message = received(RecordingOwner(), packed(7, compressed, sys_flag=1 | 0x300 | 8))
    assert message.stored_body == (compressed, 1 | 0x300)
    assert message.body == b"hello"


def test_without_a_decoder_the_value_is_the_body() -> None:
    properties = record.encode_properties({"body_type": "Order"})
    message = received(RecordingOwner(), packed(7, b"hello", properties))
    assert (message.value, message.body_type) == (b"hello", "Order")
    assert received(RecordingOwner(), packed(7, b"hello")).body_type is None


def test_a_copy_for_the_next_try_is_decoded_anew() -> None:
    class Decoder:
        def value_of(self, message: InboundMessage[Any]) -> list[bytes]:
            message.undecodable = "not quite"
            return [message.body]

    class Owner(RecordingOwner):
        context = MessageContext(decoder=Decoder())

    message: ReceivedMessage[Any] = received(Owner(), packed(7, b"hello"))
    message.value.append("changed by a handler")
    again = next_try(message)
    assert again.undecodable is None
    assert again.value == [b"hello"]


async def test_a_reason_is_told_to_the_owner() -> None:
    message = received(RecordingOwner())
    await message.dead_letter("no such\narticle")
    assert message.dead_letter_reason == "no such; article"
    with pytest.raises(UsageError, match="a reason is a str, not 3"):
        await message.dead_letter(3)  # type: ignore[arg-type]


async def test_the_end_of_a_block_settles_the_message() -> None:
    owner = RecordingOwner()
    async with received(owner):
        pass
    with pytest.raises(ValueError, match="broken"):
        async with received(owner):
            raise ValueError("broken")
    assert owner.heard == [7, (7, None)]


def test_an_unreadable_record_is_reported_and_left_out() -> None:
    damaged = bytearray(packed(2, b"hello"))
    damaged[-5] ^= 0xFF  # in the topic's length and beyond: the lengths disagree
    damaged[88] ^= 0xFF  # in the body: the checksum disagrees
    raw = packed(1, b"a") + bytes(damaged) + packed(3, b"b")
    reported: list[tuple[int, str]] = []

    def tell(offset: int, error: RecordError) -> None:
        reported.append((offset, type(error).__name__))

    assert [one.queue_offset for one in read_records(raw, tell)] == [1, 3]
    assert reported == [(2, "RecordError")]


def test_a_remainder_that_is_no_whole_record_is_left_for_the_next_pull() -> None:
    raw = packed(1, b"a") + packed(2, b"b")
    for cut in (1, 50, 90):
        assert [one.queue_offset for one in read_records(raw[:-cut], print)] == [1]


async def test_a_reply_to_a_message_without_a_requester_is_refused() -> None:
    message = received(RecordingOwner(), packed(7, b"?", b"REPLY_TO_CLIENT\x01me\x02"))
    assert message.wants_reply
    with pytest.raises(UsageError, match="cannot be replied to here"):
        await message.reply(b"x")


def test_a_message_whose_properties_are_not_utf_8_can_be_read() -> None:
    message = received(RecordingOwner(), packed(7, b"x", b"TAGS\x01\xff\x02KEYS\x01\xfe a\x02"))
    assert (message.tag, message.keys) == ("\ufffd", ("\ufffd", "a"))
    assert message.message_id == message.offset_message_id
    assert repr(message).endswith("offset 7>")


class RefusingOwner(RecordingOwner):
    """An owner in whose event loop this is not."""

    is_elsewhere = True

    def finish(self, message: InboundMessage) -> None:
        self.check()
        super().finish(message)

    def retry(self, message: InboundMessage, delay_ms: int | None) -> None:
        self.check()
        super().retry(message, delay_ms)

    def check(self) -> None:
        if self.is_elsewhere:
            raise UsageError("this client belongs to another event loop")


async def test_a_settlement_that_its_owner_refuses_may_be_made_elsewhere() -> None:
    owner = RefusingOwner()
    message = received(owner)
    for settle in (message.ack, message.nack, message.dead_letter):
        with pytest.raises(UsageError):
            await settle()
    owner.is_elsewhere = False
    retry_later(message)
    assert owner.heard == [(7, None)]
