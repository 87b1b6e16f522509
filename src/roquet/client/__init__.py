"""The client library: what users import."""

from roquet.client.config import ClientConfig, ConsumeFrom, ConsumerConfig, ProducerConfig
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.client.push import PushConsumer
from roquet.client.received import ReceivedMessage
from roquet.model.message import Message, StoredMessage
from roquet.model.queue import MessageQueue
from roquet.model.results import PullResult, PullStatus, SendReceipt, SendStatus

__all__ = [
    "ClientConfig",
    "ConsumeFrom",
    "ConsumerConfig",
    "Message",
    "MessageQueue",
    "Producer",
    "ProducerConfig",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReceivedMessage",
    "SendReceipt",
    "SendStatus",
    "StoredMessage",
]
