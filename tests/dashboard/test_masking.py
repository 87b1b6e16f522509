import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.dashboard.masking import MASK, MaskRule, mask_body, parse_rule
from roquet.model.errors import ConfigError
from roquet.model.message import StoredMessage


def message(body: bytes, topic: str = "payments", **properties: str) -> StoredMessage:
    return StoredMessage(
        topic=topic,
        body=body,
        properties=properties,
        queue_id=0,
        queue_offset=0,
        position=0,
        size=len(body),
    )


def test_a_rule_names_topics_and_perhaps_fields() -> None:
    assert parse_rule("payments") == MaskRule("payments")
    assert parse_rule("customer-*: email, iban") == MaskRule("customer-*", ("email", "iban"))


@pytest.mark.parametrize("text", ["", ":email", "a:", "a:b,,c", " "])
def test_a_rule_that_hides_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no mask rule"):
        parse_rule(text)


def test_bodies_of_other_topics_are_shown() -> None:
    shown = mask_body([MaskRule("payments")], message(b"secret", "orders"))
    assert (shown.data, shown.is_masked) == (b"secret", False)


def test_a_rule_without_fields_hides_the_whole_body() -> None:
    shown = mask_body([MaskRule("pay*")], message(b"secret"))
    assert (shown.data, shown.is_masked) == (b"", True)


def test_fields_are_hidden_at_any_depth_and_in_any_case() -> None:
    body = b'{"id":1,"who":[{"Email":"a@b.c","name":"x"}]}'
    shown = mask_body([MaskRule("*", ("email",))], message(body))
    assert msgspec.json.decode(shown.data) == {"id": 1, "who": [{"Email": MASK, "name": "x"}]}
    assert shown.is_masked


def test_json_without_the_fields_stays_byte_for_byte() -> None:
    for body in (b'{ "id": 1 }', b'{"by": "email", "to": [1.50, "\\n"]}', b'{"id":1,"id":2}'):
        shown = mask_body([MaskRule("*", ("email",))], message(body))
        assert (shown.data, shown.is_masked) == (body, False)


@pytest.mark.parametrize(
    "body",
    [
        b"email=a@b.c",
        b"\xff\xfe",
        b"[" * 5_000 + b"]" * 5_000,
        b'{"who":{"email":"a@b.c"},"who":1}',
        b'[{"who":{"\\u0065mail":"a@b.c"},"who":1}]',
    ],
)
def test_a_body_in_which_fields_cannot_be_found_is_hidden_as_a_whole(body: bytes) -> None:
    shown = mask_body([MaskRule("*", ("email",))], message(body))
    assert (shown.data, shown.is_masked) == (b"", True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RETRY_TOPIC", "payments"),
        ("DLQ_ORIGIN_TOPIC", "payments"),
        ("REAL_TOPIC", "payments"),
        ("SET_ASIDE_PLACE", "payments/0/7/900"),
        ("SET_ASIDE_GOAL", "0/payments"),
    ],
)
def test_messages_that_were_moved_go_by_the_rules_of_their_origin(name: str, value: str) -> None:
    moved = message(b"secret", "%DLQ%billing", **{name: value})
    assert mask_body([MaskRule("payments")], moved).data == b""


@pytest.mark.parametrize(
    "topic", ["%RETRY%billing_pay_ments", "%RETRY%bil_ling_pay_ments", "%RETRY%billing+pay_ments"]
)
def test_popped_messages_that_come_again_go_by_the_rules_of_their_topic(topic: str) -> None:
    assert mask_body([MaskRule("pay_ments")], message(b"secret", topic)).data == b""
    assert mask_body([MaskRule("other")], message(b"shown", topic)).data == b"shown"


json_values = st.recursive(
    st.none() | st.integers(0, 9) | st.sampled_from(["x", "4111"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "B", "card"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_values)
def test_no_value_of_a_hidden_field_is_left(value: object) -> None:
    shown = mask_body([MaskRule("*", ("card",))], message(msgspec.json.encode(value)))

    def cards(part: object) -> list[object]:
        if isinstance(part, list):
            return [card for item in part for card in cards(item)]
        if isinstance(part, dict):
            own = [part["card"]] if "card" in part else []
            return own + [c for name, item in part.items() if name != "card" for c in cards(item)]
        return []

    assert set(map(str, cards(msgspec.json.decode(shown.data)))) <= {MASK}
