import string

from hypothesis import find, given

from roquet.client.config import ProducerConfig
from roquet.client.connection.identity import MessageIdGenerator
from roquet.client.sending.prepare import MessagePreparer
from roquet.model.message import Message
from roquet.model.names import check_group, check_topic
from roquet.model.queue import MessageQueue
from roquet.model.topic import TopicConfig
from roquet.testing import strategies
from roquet.wire.records.property_text import decode_properties


@given(strategies.topic_names())
def test_every_topic_name_is_legal(name: str) -> None:
    assert check_topic(name) == name


@given(strategies.group_names())
def test_every_group_name_is_legal(name: str) -> None:
    assert check_group(name) == name


@given(strategies.messages())
def test_a_producer_takes_every_message_and_its_properties_come_back(message: Message) -> None:
    made = MessagePreparer(MessageIdGenerator("127.0.0.1", 1, 1), ProducerConfig()).prepare(
        message, 0
    )
    assert message.properties.items() <= decode_properties(made.properties.encode()).items()


@given(strategies.messages("orders"))
def test_a_topic_can_be_given(message: Message) -> None:
    assert message.topic == "orders"


def test_texts_of_other_scripts_are_among_them() -> None:
    assert not set(find(strategies.texts(), lambda text: not text.isascii())) <= set(
        string.printable
    )


@given(strategies.queues("orders"))
def test_queues_are_of_the_topic(queue: MessageQueue) -> None:
    assert queue.topic == "orders"


@given(strategies.topic_configs())
def test_a_topic_can_be_read_or_written_and_has_queues(config: TopicConfig) -> None:
    assert config.readable or config.writable
    assert config.read_queue_nums > 0
