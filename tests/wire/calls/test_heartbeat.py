from typing import Any

import pytest
from tests.vector_lines import vector_lines

from roquet.model.errors import FieldError
from roquet.model.queue import MessageQueue
from roquet.model.subscription import MessageModel
from roquet.wire.calls.bodies import AssignmentQuery, QueueAssignments, RequestMode
from roquet.wire.calls.heartbeat import (
    HeartbeatReply,
    QueryAssignment,
    SetRequestMode,
)
from roquet.wire.fastjson import codec
from roquet.wire.fields import to_ext


def test_the_answer_to_a_heartbeat_uses_the_names_of_java() -> None:
    reply = HeartbeatReply(supports_v2=True)
    assert to_ext(reply) == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}


LINES = vector_lines("bodies.jsonl")


def texts(java: str) -> list[str]:
    return [line["out"]["text"] for line in LINES if line["in"]["class"] == java]


def test_the_codes_are_the_genuine_ones() -> None:
    assert (int(QueryAssignment.code), int(SetRequestMode.code)) == (400, 401)


def test_java_requests_are_read() -> None:
    one, another, nothing = (
        codec.loads(text, AssignmentQuery) for text in texts("QueryAssignmentRequestBody")
    )
    assert one.consumer_group == "", "Java leaves null out"
    assert another == AssignmentQuery(
        topic="Topic2",
        consumer_group="group_8",
        client_id="clientId1",
        strategy_name="strategyName2",
        message_model=MessageModel.BROADCASTING,
    )
    assert codec.dumps(another).decode() == texts("QueryAssignmentRequestBody")[1]
    assert nothing.message_model is MessageModel.CLUSTERING


def test_java_answers_are_read_and_written_to_the_byte() -> None:
    _, text, nothing = texts("QueryAssignmentResponseBody")
    assignments = codec.loads(text, QueueAssignments)
    assert codec.dumps(assignments).decode() == text
    assert assignments.message_queue_assignments is not None
    (one,) = assignments.message_queue_assignments
    assert one.message_queue == MessageQueue("Topic0", "broker-b", 1)
    assert (one.mode, one.attachments) == ("PULL", {"attachments2": "attachments4"})
    assert codec.loads(nothing, QueueAssignments).message_queue_assignments is None


def test_a_mode_is_read_and_written_to_the_byte() -> None:
    text = texts("SetMessageRequestModeRequestBody")[0]
    mode = codec.loads(text, RequestMode)
    assert (mode.consumer_group, mode.pop_share_queue_num) == ("group_1", 133)
    assert codec.dumps(mode).decode() == text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"messageModel":"SOMETIMES"}'])
def test_a_broken_question_names_what_is_wrong(text: str) -> None:
    with pytest.raises(FieldError):
        codec.loads(text, AssignmentQuery)


def test_numbers_may_come_as_texts() -> None:
    given: Any = '{"topic":"t","consumerGroup":"g","mode":"POP","popShareQueueNum":"-1"}'
    assert codec.loads(given, RequestMode).pop_share_queue_num == -1
