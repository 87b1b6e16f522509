"""Values become bodies before anything else is done with a message."""

from typing import Any

import pytest

from roquet.client.sending.encoding import encode_message
from roquet.model.errors import UsageError
from roquet.model.message import Message


class Order:
    def __init__(self, number: int) -> None:
        self.number = number


def encode(order: Order) -> bytes:
    return b"%d" % order.number


def test_a_body_is_made_of_a_value_and_says_of_which_type() -> None:
    encoded = encode_message(Message("t", Order(7), tag="new", properties={"a": "b"}), encode)
    assert encoded == Message(
        "t", b"7", tag="new", properties={"a": "b", "body_type": "Order"}
    )  # fmt: skip


def test_a_type_of_the_users_own_stays() -> None:
    message = Message("t", Order(7), properties={"body_type": "shop.Order.v2"})
    assert encode_message(message, encode).properties == {"body_type": "shop.Order.v2"}


def test_the_error_of_a_user_says_where_it_comes_from() -> None:
    with pytest.raises(AttributeError, match="number") as raised:
        encode_message(Message("t", "seven"), encode)
    assert raised.value.__notes__ == ["`encode` failed on a str for topic t: nothing was sent"]


@pytest.mark.parametrize("body", ["text", None, bytearray(b"x"), memoryview(b"x")], ids=type)
def test_what_is_no_bytes_is_refused(body: Any) -> None:
    with pytest.raises(UsageError, match="`encode` returns bytes: of a Order it made a"):
        encode_message(Message("t", Order(7)), lambda _: body)


@pytest.mark.parametrize("message", [b"x", None, "t", 3], ids=repr)
def test_what_is_no_message_is_refused(message: Any) -> None:
    with pytest.raises(UsageError, match="a message is a Message"):
        encode_message(message, encode)


def test_properties_that_are_none_are_left_to_later_checks() -> None:
    message: Any = Message("t", Order(7), properties=3)  # type: ignore[arg-type]
    assert encode_message(message, encode).properties == 3  # type: ignore[comparison-overlap]


def test_what_encode_does_to_a_value_changes_nothing_that_was_encoded_before() -> None:
    values = [1, 2]

    def taking(value: list[int]) -> bytes:
        return b"%d" % value.pop()

    first = encode_message(Message("t", values), taking)
    assert (first.body, encode_message(Message("t", values), taking).body) == (b"2", b"1")
