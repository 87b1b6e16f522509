from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import UsageError
from roquet.rules.topic_attributes import ATTRIBUTES, apply_changes, parse_changes

GOOD = {
    "queue.type": "SimpleCQ",
    "cleanup.policy": "DELETE",
    "message.type": "FIFO",
    "reserve.time": "-1",
}


def test_a_new_topic_gets_the_attributes_that_are_added() -> None:
    wanted = parse_changes("+message.type=DELAY, +reserve.time=60")
    assert apply_changes(None, wanted) == {"message.type": "DELAY", "reserve.time": "60"}
    assert apply_changes(None, {}) == {}


def test_attributes_are_changed_and_taken_away() -> None:
    known = {"message.type": "FIFO", "reserve.time": "1", "queue.type": "SimpleCQ"}
    attributes = apply_changes(known, parse_changes("-reserve.time,+message.type=NORMAL"))
    assert attributes == {"message.type": "NORMAL", "queue.type": "SimpleCQ"}
    assert known["message.type"] == "FIFO"


def test_a_repeated_value_is_not_a_change() -> None:
    known = {"cleanup.policy": "DELETE"}
    assert apply_changes(known, parse_changes("+cleanup.policy=DELETE")) == known


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("message.type=FIFO", "add/alter attribute format is wrong: message.type"),
        ("-message.type=FIFO", "add/alter attribute format is wrong: -message.type"),
        ("+message.type", "delete attribute format is wrong: +message.type"),
        ("+message.type=FIFO,+message.type=DELAY", "key duplication: [+]message.type"),
    ],
)
def test_a_text_that_says_no_change_is_refused(text: str, remark: str) -> None:
    with pytest.raises(UsageError, match=remark.replace("wrong: +", "wrong: [+]")):
        parse_changes(text)


@pytest.mark.parametrize(
    ("known", "wanted", "remark"),
    [
        (None, {"-message.type": ""}, "only add attribute is supported while creating topic"),
        ({}, {"-message.type": ""}, "attempt to delete a nonexistent key: message.type"),
        (None, {"+color": "red"}, "unsupported key: color"),
        ({}, {"+queue.type": "SimpleCQ"}, "attempt to update an unchangeable attribute"),
        ({"queue.type": "SimpleCQ"}, {"-queue.type": ""}, "an unchangeable attribute. key: queue"),
        (None, {"+message.type": "SLOW"}, "value 'SLOW' is not in set: .DELAY, FIFO"),
        (None, {"+message.type": "MIXED"}, "MIXED message type is not supported"),
        (None, {"+queue.type": "BatchCQ"}, "BatchCQ is not supported"),
        (None, {"+cleanup.policy": "COMPACTION"}, "COMPACTION is not supported"),
        (None, {"+reserve.time": "long"}, "'long' is not a number"),
        (None, {"+reserve.time": "-2"}, "value is not in range"),
        (None, {"+reserve.time": "9" * 30}, "value is not in range"),
        (None, {"message.type": "FIFO"}, "wrong format key: message.type"),
        (None, {"+": "FIFO"}, "wrong format key: [+]"),
        ({"reserve.time": "1"}, {"+reserve.time": "2", "-reserve.time": ""}, "duplication key"),
    ],
)
def test_impossible_checkpoints_are_refused(
    known: Any, wanted: dict[str, str], remark: str
) -> None:
    with pytest.raises(UsageError, match=remark):
        apply_changes(known, wanted)


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), st.none()))
def test_every_attribute_can_be_set_when_the_topic_is_made(keys: dict[str, None]) -> None:
    assert set(GOOD) == set(ATTRIBUTES)
    text = ",".join(f"+{key}={GOOD[key]}" for key in keys)
    assert apply_changes(None, parse_changes(text)) == {key: GOOD[key] for key in keys}
