"""Edges of the limits; tests/proxy/test_recorded_answers.py holds the codes to genuine answers."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from roquet.rules.proxy import validation
from roquet.rules.proxy.status import ProxyRefusal, StatusCode


@contextmanager
def refused(code: StatusCode) -> Iterator[None]:
    with pytest.raises(ProxyRefusal) as caught:
        yield
    assert caught.value.code is code


@pytest.mark.parametrize("topic", ["t", "%RETRY%g", "t" * 127, "a|b"])
def test_legal_topics_are_returned(topic: str) -> None:
    assert validation.check_topic(topic) == topic


@pytest.mark.parametrize("topic", ["", "  ", "t" * 128, "a b", "ü", "TBW102", "rmq_sys_x"])
def test_illegal_topics_are_refused(topic: str) -> None:
    with refused(StatusCode.ILLEGAL_TOPIC):
        validation.check_topic(topic)


@pytest.mark.parametrize("group", ["", " ", "g" * 121, "a b", "CID_RMQ_SYS_x"])
def test_illegal_groups_are_refused(group: str) -> None:
    with refused(StatusCode.ILLEGAL_CONSUMER_GROUP):
        validation.check_group(group)


def test_the_largest_body_is_4_mib() -> None:
    validation.check_body(4 * 1024 * 1024)
    with refused(StatusCode.MESSAGE_BODY_TOO_LARGE):
        validation.check_body(4 * 1024 * 1024 + 1)


def test_properties_tag_and_keys_share_16_kib_counted_in_utf_8() -> None:
    validation.check_properties({"k": "v" * 8_000}, "t" * 4_000, ["k" * 4_383])
    with refused(StatusCode.MESSAGE_PROPERTIES_TOO_LARGE):
        validation.check_properties({"k": "v" * 8_000}, "t" * 4_000, ["k" * 4_384])
    with refused(StatusCode.MESSAGE_PROPERTIES_TOO_LARGE):
        validation.check_properties({"k": "ü" * 8_192}, "", [])


def test_a_message_group_has_up_to_63_bytes() -> None:
    assert validation.check_message_group("g" * 63) == "g" * 63
    with refused(StatusCode.ILLEGAL_MESSAGE_GROUP):
        validation.check_message_group("ü" * 32)


def test_a_message_is_delivered_within_a_day() -> None:
    assert validation.check_delivery_ms(86_400_000, 0) == 86_400_000
    with refused(StatusCode.ILLEGAL_DELIVERY_TIME):
        validation.check_delivery_ms(86_400_001, 0)


@pytest.mark.parametrize("seconds", [-1, 3_601])
def test_a_transaction_rests_for_an_hour_at_most(seconds: int) -> None:
    with refused(StatusCode.BAD_REQUEST):
        validation.check_recovery_s(seconds)


@pytest.mark.parametrize(
    ("asked", "left", "wait"),
    [
        (1_000, 30_000, 5_000),  # raised to the least
        (60_000, 90_000, 20_000),  # lowered to the most
        (10_000, 8_000, 8_000),  # what is left
        (None, 15_000, 13_500),  # the deadline less half of a request's time
        (None, None, 20_000),
    ],
)
def test_a_receive_waits_as_long_as_it_asks_and_its_deadline_lets_it(
    asked: int | None, left: int | None, wait: int
) -> None:
    assert validation.polling_ms(asked, left, 3_000) == wait


def test_a_receive_with_a_near_deadline_is_refused() -> None:
    with refused(StatusCode.ILLEGAL_POLLING_TIME):
        validation.polling_ms(10_000, 4_999, 3_000)
