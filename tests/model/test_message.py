import copy
import pickle
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from roquet.model.errors import UsageError
from roquet.model.message import Message, StoredMessage


def stored(**properties: str) -> StoredMessage:
    return StoredMessage(
        topic="orders",
        body=b"\x00\xff",
        properties=properties,
        queue_id=1,
        queue_offset=7,
        position=4096,
        size=180,
        offset_message_id="0A00000100002A9F0000000000001000",
    )


def test_a_message_needs_only_a_topic_and_a_body() -> None:
    message = Message("orders", b"one")
    assert (message.tag, message.keys, message.order_key, dict(message.properties)) == (
        None,
        (),
        None,
        {},
    )


def test_a_message_does_not_change() -> None:
    message = Message("orders", b"one")
    with pytest.raises(AttributeError):
        message.body = b"two"  # type: ignore[misc]


def test_messages_without_properties_share_nothing_that_one_could_write_to() -> None:
    with pytest.raises(TypeError):
        Message("orders", b"").properties["a"] = "b"  # type: ignore[index]


def test_another_body_is_another_message() -> None:
    message = Message("orders", b"one", tag="paid")
    assert msgspec.structs.replace(message, body=b"two") == Message("orders", b"two", tag="paid")


def test_a_body_keeps_its_zero_bytes() -> None:
    assert stored().body == b"\x00\xff"


def test_the_id_that_the_producer_gave_comes_first() -> None:
    message = stored(UNIQ_KEY="7F0000010001")
    assert message.message_id == "7F0000010001"
    assert stored().message_id == stored().offset_message_id
    assert stored(UNIQ_KEY="").message_id == stored().offset_message_id


@pytest.mark.parametrize("keys", ["A-17", ("A-17",), ["A-17"], iter(["A-17"])])
def test_keys_are_one_text_or_any_sequence_of_them(keys: Any) -> None:
    assert Message("orders", b"one", keys=keys).keys == ("A-17",)


def test_keys_of_another_type_are_an_error_that_says_so() -> None:
    with pytest.raises(UsageError, match=r"keys are str, .* not 17"):
        Message("orders", b"one", keys=17)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"keys are str, .* not b'A-17'"):
        Message("orders", b"one", keys=b"A-17")  # type: ignore[arg-type]


def test_the_tag_and_the_keys_are_properties() -> None:
    message = stored(TAGS="paid", KEYS="N14228 UA1545")
    assert message.tag == "paid"
    assert message.keys == ("N14228", "UA1545")
    assert message.key == "N14228"


def test_a_message_without_tag_and_keys_says_so() -> None:
    message = stored()
    assert (message.tag, message.keys, message.key) == (None, (), None)


def test_other_blanks_are_part_of_a_key() -> None:
    assert stored(KEYS="lot\u3000A lot\tB").keys == ("lot\u3000A", "lot\tB")


def test_messages_can_be_copied_and_handed_to_another_process() -> None:
    for message in (Message("orders", b"one"), stored(TAGS="paid")):
        for again in (copy.copy(message), copy.deepcopy(message), dumped_and_loaded(message)):
            assert again == message
    with pytest.raises(TypeError):
        copy.deepcopy(Message("orders", b"")).properties["a"] = "b"  # type: ignore[index]


def dumped_and_loaded(message: object) -> object:
    return pickle.loads(pickle.dumps(message))


def test_its_times_are_datetimes_in_utc_too() -> None:
    message = msgspec.structs.replace(stored(), born_ms=1_000, stored_ms=2_000)
    assert message.born_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert message.stored_at == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
