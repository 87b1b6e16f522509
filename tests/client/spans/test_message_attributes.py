"""What spans show of messages, whatever anybody has written into their properties."""

import pytest

from roquet.client.spans.message_attributes import property_attributes, sent_attributes

PREFIX = "messaging.rocketmq.message"


@pytest.mark.parametrize(
    ("level", "shown"), [("3", 3), ("x", None), ("9" * 5_000, None), ("", None), ("-1", None)]
)
def test_a_number_is_shown_only_if_it_is_one(level: str, shown: int | None) -> None:
    assert property_attributes({"DELAY": level}).get(f"{PREFIX}.delay_time_level") == shown


def test_tag_keys_and_order_key_are_shown() -> None:
    properties = {
        "TAGS": "new",
        "KEYS": "a lot\u3000B",
        "__SHARDINGKEY": "o-1",
        "TIMER_DELIVER_MS": "17",
    }
    assert property_attributes(properties) == {
        f"{PREFIX}.tag": "new",
        f"{PREFIX}.keys": ["a", "lot\u3000B"],
        f"{PREFIX}.group": "o-1",
        f"{PREFIX}.delivery_timestamp": 17,
    }


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, "normal"),
        ({"__SHARDINGKEY": "k"}, "fifo"),
        ({"TIMER_DELAY_MS": "5", "__SHARDINGKEY": "k"}, "delay"),
        ({"TRAN_MSG": "true"}, "transaction"),
    ],
)
def test_a_sent_message_has_a_type(properties: dict[str, str], kind: str) -> None:
    assert sent_attributes(properties, 3)[f"{PREFIX}.type"] == kind
