import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.rules import topic_id


def test_two_topics_of_one_name_and_one_millisecond_have_different_ids() -> None:
    assert topic_id.new_id(1_763_836_680_000, 17) == "1763836680000-17"
    assert topic_id.is_other_topic(
        topic_id.new_id(1_763_836_680_000, 17), topic_id.new_id(1_763_836_680_000, 19)
    )


def test_a_topic_is_itself() -> None:
    assert not topic_id.is_other_topic("1763836680000-17", "1763836680000-17")


def test_where_one_side_knows_no_id_nothing_is_certain() -> None:
    assert not topic_id.is_other_topic(None, "1763836680000-17")
    assert not topic_id.is_other_topic("1763836680000-17", None)
    assert not topic_id.is_other_topic(None, None)


def test_an_id_that_was_adopted_later_accuses_nobody() -> None:
    """A broker that knows no ids may have dropped the previous one."""
    assert not topic_id.is_other_topic(topic_id.new_id(1, 1), topic_id.adopted_id(2, 5))
    assert not topic_id.is_other_topic(topic_id.adopted_id(1, 1), topic_id.adopted_id(2, 5))


def test_a_topic_made_after_an_adopted_one_is_another() -> None:
    assert topic_id.is_other_topic(topic_id.adopted_id(1, 1), topic_id.new_id(2, 5))


def test_an_id_has_the_time_of_its_topics_creation() -> None:
    assert topic_id.created_ms(topic_id.new_id(1_763_836_680_000, 17)) == 1_763_836_680_000
    assert topic_id.created_ms(topic_id.adopted_id(1_763_836_680_000, 17)) is None


@given(st.integers(0, 4_000_000_000_000), st.integers(0, 2**40), st.booleans())
def test_an_id_as_a_number_of_64_bits_is_the_same_id(now_ms: int, edition: int, late: bool) -> None:
    one = (topic_id.adopted_id if late else topic_id.new_id)(now_ms, edition)
    number = topic_id.to_number(one)
    assert number is not None
    assert 0 <= number < 2**63
    assert topic_id.from_number(number) == one


@pytest.mark.parametrize(
    "other", ["", "7", "a-b", "1-9999999", "adopted-", "1-1-1", "9999999999999-1"]
)
def test_text_of_another_form_is_no_number(other: str) -> None:
    assert topic_id.to_number(other) is None
