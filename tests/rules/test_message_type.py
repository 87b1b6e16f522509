"""Types of messages, and the topics that take them."""

import pytest

from roquet.proxy.protos import definition_pb2 as pb
from roquet.rules.message_type import MessageType, accepted_types, message_type, type_fault
from roquet.rules.proxy.status import StatusCode


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, MessageType.NORMAL),
        ({"TAGS": "a"}, MessageType.NORMAL),
        ({"__SHARDINGKEY": "g"}, MessageType.FIFO),
        ({"TIMER_DELIVER_MS": "1"}, MessageType.DELAY),
        ({"DELAY": "3"}, MessageType.DELAY),
        ({"TRAN_MSG": "true"}, MessageType.TRANSACTION),
        ({"_SYS_MSG_PRIORITY_": "3"}, MessageType.PRIORITY),
        ({"TRAN_MSG": "true", "TIMER_DELIVER_MS": "1"}, MessageType.TRANSACTION),
        ({"TIMER_DELIVER_MS": "1", "__SHARDINGKEY": "g"}, MessageType.DELAY),
        ({"__SHARDINGKEY": "g", "_SYS_MSG_PRIORITY_": "3"}, MessageType.FIFO),
    ],
)
def test_a_message_is_what_its_properties_say(
    properties: dict[str, str], kind: MessageType
) -> None:
    assert message_type(properties) is kind


def test_a_topic_takes_the_type_of_its_attribute_and_normal_messages_without_one() -> None:
    assert accepted_types("FIFO") == (MessageType.FIFO,)
    assert accepted_types(None) == (MessageType.NORMAL,)
    assert accepted_types("UNSPECIFIED") == (MessageType.MESSAGE_TYPE_UNSPECIFIED,)
    assert set(accepted_types("MIXED")) == {
        MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION,
    }  # fmt: skip


def test_a_message_of_another_type_is_refused_and_the_command_for_its_topic_named() -> None:
    assert type_fault(MessageType.NORMAL, "t", "FIFO") == (
        "topic t takes FIFO messages, this is a NORMAL message: create a topic for it, "
        "`roquet topic create NAME --attribute +message.type=NORMAL`"
    )


@pytest.mark.parametrize(
    ("topic", "kind"), [("%RETRY%g", "FIFO"), ("%DLQ%g", "FIFO"), ("t", "MIXED")]
)
def test_retries_dead_letters_and_mixed_topics_take_every_type(topic: str, kind: str) -> None:
    assert type_fault(MessageType.DELAY, topic, kind) is None


def test_a_message_of_the_topics_type_is_taken() -> None:
    assert type_fault(MessageType.FIFO, "t", "FIFO") is None
    assert type_fault(MessageType.NORMAL, "t", None) is None


def test_numbers_of_types_and_statuses_are_those_of_the_protocol() -> None:
    assert {kind.name: kind.value for kind in MessageType} == dict(pb.MessageType.items())
    assert {code.name: code.value for code in StatusCode}.items() <= dict(pb.Code.items()).items()
