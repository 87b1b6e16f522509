"""Edges of the limits; tests/proxy/test_recorded_answers.py holds the codes to genuine answers."""

import re
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


@pytest.mark.parametrize(
    ("properties", "tag", "keys", "code"),
    [
        ({"UNIQ_KEY": "x"}, "", [], StatusCode.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"k": "a\x01"}, "", [], StatusCode.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"k\x02": "a"}, "", [], StatusCode.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({f"k{number}": "v" for number in range(129)}, "", [],
         StatusCode.MESSAGE_PROPERTIES_TOO_LARGE),
        ({}, "a|b", [], StatusCode.ILLEGAL_MESSAGE_TAG),
        ({}, "  ", [], StatusCode.ILLEGAL_MESSAGE_TAG),
        ({}, "a\x01", [], StatusCode.ILLEGAL_MESSAGE_TAG),
        ({}, "", [" "], StatusCode.ILLEGAL_MESSAGE_KEY),
        ({}, "", ["a\x01"], StatusCode.ILLEGAL_MESSAGE_KEY),
    ],
)  # fmt: skip
def test_illegal_properties_tags_and_keys_are_refused(
    properties: dict[str, str], tag: str, keys: list[str], code: StatusCode
) -> None:
    with refused(code):
        validation.check_properties(properties, tag, keys)


def test_an_empty_body_and_a_blank_id_are_refused() -> None:
    with refused(StatusCode.MESSAGE_BODY_EMPTY):
        validation.check_body(0)
    with refused(StatusCode.ILLEGAL_MESSAGE_ID):
        validation.check_message_id(" ")


def test_an_invisible_time_is_within_its_bounds() -> None:
    assert validation.check_invisible_ms(10_000, 10_000) == 10_000
    for wrong in (9_999, 12 * 3_600_000 + 1):
        with refused(StatusCode.ILLEGAL_INVISIBLE_TIME):
            validation.check_invisible_ms(wrong, 10_000)


def test_a_receive_asks_for_at_least_one_message_and_gets_32_at_most() -> None:
    assert validation.check_batch(1) == 1
    assert validation.check_batch(500) == 32
    with refused(StatusCode.BAD_REQUEST):
        validation.check_batch(0)


def test_a_priority_is_not_below_0() -> None:
    assert validation.check_priority(0) == 0
    with refused(StatusCode.BAD_REQUEST):
        validation.check_priority(-1)


def test_legal_values_are_returned() -> None:
    assert validation.check_group("g") == "g"
    assert validation.check_recovery_s(3_600) == 3_600
    assert validation.check_message_id("01AB") == "01AB"
    validation.check_properties({"k": "v"}, "", [])


@pytest.mark.parametrize(
    ("properties", "fault"),
    [
        ({f"k{n}": "v" for n in range(33)}, "33 client properties are over the limit of 32"),
        ({"": "v"}, "client property '': a name has 1 to 64"),
        ({"1st": "v"}, "client property '1st'"),
        ({"a b": "v"}, "client property 'a b'"),
        ({"k" * 65: "v"}, "a name has 1 to 64"),
        ({"zone": "v" * 257}, "client property zone: 257 characters are over the limit of 256"),
        ({f"k{n}": "v" * 200 for n in range(21)}, "bytes are over the limit of 4096"),
        ({f"k{n}": "é" * 250 for n in range(9)}, "bytes are over the limit of 4096"),
    ],
)
def test_what_a_client_says_of_itself_has_limits(properties: dict[str, str], fault: str) -> None:
    with pytest.raises(ProxyRefusal, match=re.escape(fault)) as caught:
        validation.check_client_properties(properties)
    assert caught.value.code is StatusCode.INVALID_CLIENT_PROPERTIES


def test_a_client_may_say_where_it_runs() -> None:
    validation.check_client_properties({"zone": "eu-1", "k" * 64: "v" * 256, "rocketmq.v-1_2": ""})


@pytest.mark.parametrize("seconds", [-1, 3_601])
def test_a_transaction_rests_for_an_hour_at_most(seconds: int) -> None:
    with refused(StatusCode.BAD_REQUEST):
        validation.check_recovery_s(seconds)


@pytest.mark.parametrize(
    ("asked", "left", "wait"),
    [
        (1_000, 30_000, 5_000),  # raised to the least
        (60_000, 90_000, 20_000),  # lowered to the most
        (10_000, 8_000, 7_700),  # what is left, less the time of the answer
        (8_000, 8_000, 7_700),
        (10_000, 5_100, 5_000),
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
