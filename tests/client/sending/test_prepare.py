"""Messages are checked before anything is sent."""

import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.for_each import for_each

from roquet.client.config import ProducerConfig
from roquet.client.connection.identity import MessageIdGenerator
from roquet.client.sending.prepare import (
    MessageFields,
    MessagePreparer,
    PreparedMessage,
    build_message,
)
from roquet.model.errors import MessageIllegal, UsageError
from roquet.model.flags import ZLIB, SysFlag
from roquet.model.message import Message
from roquet.model.properties import PROPERTIES_SIZE_MAX, RESERVED
from roquet.model.queue import MessageQueue
from roquet.wire.records.batch import decode_batch, encode_batch
from roquet.wire.records.compression import Compression, decompress, with_compression
from roquet.wire.records.property_text import decode_properties

texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)


def prepare(message: Message, **settings: Any) -> PreparedMessage:
    keys = MessageIdGenerator("10.0.0.1", 7, 1)
    return MessagePreparer(keys, ProducerConfig(**settings)).prepare(message, 1_760_000_000_000)


def refused(message: Message) -> str:
    with pytest.raises((MessageIllegal, UsageError)) as caught:
        prepare(message)
    return str(caught.value)


def test_all_fields_are_sent_as_properties() -> None:
    prepared = prepare(Message("t", b"x", "new", ("a", "b"), "o-1", {"colour": "red"}, 3))
    assert decode_properties(prepared.properties) == {
        "UNIQ_KEY": prepared.message_id,
        "KEYS": "a b",
        "TAGS": "new",
        "__SHARDINGKEY": "o-1",
        "colour": "red",
    }
    assert (prepared.topic, prepared.body, prepared.flag, prepared.born_ms) == (
        "t",
        b"x",
        3,
        1_760_000_000_000,
    )


def test_the_order_key_is_hashed_as_java_does() -> None:
    assert prepare(Message("t", b"x", order_key="XXX001")).order_hash == -1691662887
    assert prepare(Message("t", b"x")).order_hash is None


@given(st.dictionaries(texts.filter(lambda n: n not in RESERVED), texts, max_size=4))
def test_users_properties_come_back_as_they_were(properties: dict[str, str]) -> None:
    decoded = decode_properties(prepare(Message("t", b"x", properties=properties)).properties)
    del decoded["UNIQ_KEY"]
    assert decoded == properties


def test_a_long_body_is_compressed_when_sent_alone() -> None:
    body = b"x" * 4096
    compressed, flag = prepare(Message("t", body)).compressed(ProducerConfig())
    assert zlib.decompress(compressed) == body
    assert flag == SysFlag.COMPRESSED | ZLIB
    assert prepare(Message("t", body[:4095])).compressed(ProducerConfig()) == (body[:4095], 0)


@pytest.mark.parametrize("kind", Compression)
def test_another_compression_may_be_configured(kind: Compression) -> None:
    config = ProducerConfig(compression=kind)
    compressed, flag = prepare(Message("t", b"x" * 9_000)).compressed(config)
    assert len(compressed) < 200
    assert flag == with_compression(0, kind)
    assert decompress(compressed, flag) == b"x" * 9_000


def test_a_body_that_does_not_shrink_is_sent_as_it_is() -> None:
    body = Random(1).randbytes(5_000)
    assert prepare(Message("t", body)).compressed(ProducerConfig()) == (body, 0)


def test_in_a_batch_a_body_stays_as_it_is() -> None:
    prepared = prepare(Message("t", b"x" * 5000, flag=9))
    (item,) = decode_batch(encode_batch([prepared]))
    assert (item.flag, item.body, item.properties.decode()) == (
        9,
        prepared.body,
        prepared.properties,
    )


@for_each(sorted(RESERVED))
def test_the_systems_properties_cannot_be_set(name: str) -> None:
    assert f"property {name} belongs" in refused(Message("t", b"x", properties={name: "1"}))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("no such", b"x"), "topic name"),
        (Message("", b"x"), "blank"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "the broker's own"),
        (Message("t", b""), "empty"),
        (Message("t", "text"), "encode it"),
        (Message("t", b"x" * (4 * 1024 * 1024 + 1)), "over the limit of 4194304"),
        (Message("t", b"x", keys=("a b",)), "blank"),
        (Message("t", b"x", keys=("",)), "empty"),
        (Message("t", b"x", tag="a\x01b"), "the tag holds U+0001"),
        (Message("t", b"x", properties={"a": "b\x02"}), "'a' holds"),
        (Message("t", b"x", order_key="\x02"), "the order key holds"),
        (Message("t", b"x", keys=("a\x01",)), "a key holds"),
        (Message("t", b"x", properties={"a": ""}), "empty"),
        (Message("t", b"x", properties={"": "a"}), "empty"),
        (Message("t", b"x", properties={"a": 1}), "names and values are str"),  # type: ignore[dict-item]
        (Message("t", b"x", order_key=""), "order key is empty"),
        (Message("t", b"x", order_key=7), "is a str, not 7"),  # type: ignore[arg-type]
        (Message("t", b"x", delay_level=-2), "an int from 0, not -2"),
        (Message("t", b"x", delay_level="3"), "not '3'"),  # type: ignore[arg-type]
        (Message("t", b"x", delay=3), "given as delay_level"),  # type: ignore[arg-type]
        (Message("t", b"x", delay=timedelta(seconds=-1)), "in the past"),
        (Message("t", b"x", deliver_at=datetime(2030, 1, 1)), "no time zone"),  # noqa: DTZ001
        (Message("t", b"x", deliver_at=9), "not 9"),  # type: ignore[arg-type]
        (Message("t", b"x", delay_level=1, delay=timedelta(1)), "exclude each other"),
        (Message("t", b"x", properties={"a": "é" * 17_000}), "over the limit of 32767"),
    ],
    ids=range(25),
)
def test_an_invalid_message_is_refused_with_the_reason(message: Message, reason: str) -> None:
    assert reason in refused(message)


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [
        (Message("t", b"x", delay_level=3), "DELAY", "3"),
        (Message("t", b"x", delay_level=99), "DELAY", "99"),  # the broker takes its highest
        (Message("t", b"x", delay=timedelta(seconds=1.5)), "TIMER_DELAY_MS", "1500"),
        (Message("t", b"x", delay=timedelta(microseconds=1)), "TIMER_DELAY_MS", "1"),
        (
            Message("t", b"x", deliver_at=datetime(2030, 1, 1, tzinfo=UTC)),
            "TIMER_DELIVER_MS",
            "1893456000000",
        ),
        (
            Message(
                "t", b"x", deliver_at=datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
            ),
            "TIMER_DELIVER_MS",
            "1893456000000",
        ),
    ],
)
def test_when_it_is_due_travels_as_clients_of_version_5_write_it(
    message: Message, name: str, value: str
) -> None:
    prepared = prepare(message)
    assert decode_properties(prepared.properties)[name] == value
    assert prepared.is_unbatchable


def test_a_message_due_at_once_has_no_delay_property() -> None:
    prepared = prepare(Message("t", b"x", delay_level=0, delay=timedelta(0)))
    assert list(decode_properties(prepared.properties)) == ["UNIQ_KEY"]
    assert not prepared.is_unbatchable


def test_the_level_minus_one_delays_nothing_as_in_java() -> None:
    prepared = prepare(Message("t", b"x", delay_level=-1))
    assert not prepared.is_unbatchable
    assert "DELAY" not in prepared.properties
    later = prepare(Message("t", b"x", delay_level=-1, delay=timedelta(seconds=1)))
    assert "TIMER_DELAY_MS\x011000\x02" in later.properties
    assert "DELAY\x01-1" not in later.properties


def test_a_message_with_a_priority_goes_alone_since_it_chooses_the_queue() -> None:
    prepared = prepare(Message("t", b"x", priority=0))
    assert decode_properties(prepared.properties)["_SYS_MSG_PRIORITY_"] == "0"
    assert prepared.is_unbatchable


@pytest.mark.parametrize("priority", [-1, 2**31, True, "high", 1.0])
def test_a_priority_is_a_number_from_0(priority: Any) -> None:
    with pytest.raises(UsageError, match="a priority is an int from 0 to 2147483647, not"):
        prepare(Message("t", b"x", priority=priority))


@pytest.mark.parametrize("other", [{"order_key": "o"}, {"delay_level": 3}])
def test_a_priority_excludes_an_order_key_and_a_delay(other: dict[str, Any]) -> None:
    with pytest.raises(MessageIllegal, match="priority excludes an order key and a delay"):
        prepare(Message("t", b"x", priority=3, **other))


def test_a_failed_message_of_another_group_goes_alone() -> None:
    assert prepare(Message("%RETRY%g", b"x")).is_unbatchable


def test_a_selector_takes_the_place_of_turns_but_not_of_a_key() -> None:
    def first(queues: Sequence[MessageQueue], _: Message) -> Any:
        return queues[0]

    assert prepare(Message("t", b"x"), selector=first).is_bound
    prepared = prepare(Message("t", b"x", order_key="k"), selector=first)
    assert prepared.selection is None
    assert prepared.is_bound
    keys = MessageIdGenerator("10.0.0.1", 7, 1)
    asked = MessagePreparer(keys, ProducerConfig()).prepare(
        Message("t", b"x", order_key="k"), 0, first
    )
    assert asked.selection is not None  # for this one message it was asked for


def test_a_message_is_made_of_parts() -> None:
    fields: MessageFields = {"tag": "new", "keys": ["a"], "properties": {"b": "c"}}
    assert build_message("t", b"x", fields) == Message("t", b"x", "new", ("a",), None, {"b": "c"})
    assert build_message("t", b"x", {"keys": "a"}).keys == ("a",)
    whole = Message("t", b"x")
    assert build_message(whole, None, {}) is whole


def test_parts_and_a_whole_do_not_mix() -> None:
    with pytest.raises(UsageError, match="as it is"):
        build_message(Message("t", b"x"), None, {"tag": "a"})
    with pytest.raises(UsageError, match="the body is missing"):
        build_message("t", None, {})


@pytest.mark.parametrize(
    ("name", "meant"), [("tags", "tag"), ("key", "keys"), ("deliver", "deliver_at")]
)
def test_a_field_that_a_message_has_not_is_an_error_with_a_suggestion(
    name: str, meant: str
) -> None:
    fields: Any = {name: "a"}
    with pytest.raises(UsageError, match=rf"{name}: a message has no .*did you mean '{meant}'"):
        build_message("t", b"x", fields)
    with pytest.raises(UsageError, match=r"headers: .*mean 'properties'\?; it has .*properties"):
        build_message("t", b"x", cast("Any", {"headers": {}}))


def test_kafkas_names_of_a_messages_parts_are_translated() -> None:
    with pytest.raises(UsageError, match=r"value: a message has no .*it is the `body`"):
        build_message("t", None, cast("Any", {"value": b"x"}))
    with pytest.raises(UsageError, match=r"'order_key', by which Kafka's key"):
        build_message("t", b"x", cast("Any", {"key": "a"}))


@given(texts)
def test_the_size_in_a_batch_is_counted_in_bytes(text: str) -> None:
    prepared = prepare(Message("t", b"x", properties={"text": text}))
    assert prepared.batch_size == len(encode_batch([prepared]))


@pytest.mark.parametrize("tag", ["*", "a||b", "||", " ", " new", "new "])
def test_a_tag_that_cannot_be_subscribed_to_is_refused(tag: str) -> None:
    assert "nobody can subscribe to the tag" in refused(Message("t", b"x", tag))


def test_a_tag_may_hold_a_bar_or_a_star_and_is_a_text() -> None:
    for tag in ("a|b", "a*", "**", "two words", "größe"):
        assert decode_properties(prepare(Message("t", b"x", tag)).properties)["TAGS"] == tag
    assert "a tag is a str" in refused(Message("t", b"x", ["new"]))  # type: ignore[arg-type]


def test_a_traces_context_is_added_while_it_fits() -> None:
    prepared = prepare(Message("t", b"x", properties={"colour": "red"}))
    carried = prepared.with_context({"traceparent": "00-1"})
    assert decode_properties(carried.properties)["traceparent"] == "00-1"
    assert carried.batch_size - prepared.batch_size == len("traceparent\x0100-1\x02")
    assert prepared.with_context({}) is prepared
    assert prepared.with_context({"baggage": "x" * PROPERTIES_SIZE_MAX}) is prepared
