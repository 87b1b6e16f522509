import pytest
from tests.vector_lines import vector_lines

from roquet.model.errors import FieldError
from roquet.model.queue import MessageQueue
from roquet.wire.calls.admin.offset_reset import (
    GetClientStatus,
    ResetClientOffset,
)
from roquet.wire.calls.bodies import ResetOffsetBody, ResetOffsetList
from roquet.wire.fastjson import codec

LINES = vector_lines("bodies.jsonl")


def texts(java: str) -> list[str]:
    vectors = [line for line in LINES if line["in"]["class"] == java]
    return [line["out"]["text"] for line in vectors if line["in"]["op"] == "encode"]


def test_the_codes_are_the_genuine_ones() -> None:
    assert (int(ResetClientOffset.code), int(GetClientStatus.code)) == (220, 221)


def test_queues_are_keys() -> None:
    (one,) = codec.loads(texts("ResetOffsetBody")[0], ResetOffsetBody).offset_table.items()
    assert one == (MessageQueue("Topic0", "broker-b", 0), 1700811086560)


def test_the_two_forms_of_a_reset_are_told_apart() -> None:
    listed = texts("ResetOffsetBodyForC")[0]
    with pytest.raises(FieldError):
        codec.loads(listed, ResetOffsetBody)
    first = codec.loads(listed, ResetOffsetList).offset_table[0]
    assert (first.topic, first.broker_name, first.queue_id, first.offset) == (
        "Topic0", "broker-a", 3, 34037,
    )  # fmt: skip
