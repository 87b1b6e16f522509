"""Client library: producers and consumers, their settings and errors.

    blocking                                    all of it without async, on a shared loop thread
    push · pull · pop · transaction             classes that users construct
    consumer · producer · transaction_check     their common parts
    operator/                                   requests of operators: resets, running info
    popping/ · rebalance/ · tracing/            pops and acks · queues of a group · message traces
    reading/                                    pulls, handlers, retries, offsets
    sending/                                    preparation, batches, retries on other brokers
    connection/                                 identity, routes, heartbeats, background tasks
    spans/                                      OpenTelemetry's spans, where a setting asks for them
    config                                      settings

Each line imports only from those below it; a contract in pyproject.toml checks that.
"""

from roquet.client.config import ClientConfig, ConsumeFrom, ConsumerConfig, ProducerConfig
from roquet.client.pop import PopConsumer
from roquet.client.popping.pop_batch import PoppedMessage
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.client.push import PushConsumer
from roquet.client.reading.message import ReceivedMessage
from roquet.client.reading.request_reply import ReplyMessage
from roquet.client.sending.selectors import Chance, KeyHash, MachineRoom
from roquet.client.transaction import Transaction, TransactionProducer, TransactionReceipt
from roquet.client.transaction_check import TransactionState
from roquet.model.errors import (
    CallError,
    CallRefused,
    CallTimeout,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    FieldError,
    MessageIllegal,
    NotFound,
    RecordError,
    RemoteProtocolError,
    RoquetError,
    UsageError,
)
from roquet.model.message import Message, StoredMessage
from roquet.model.queue import MessageQueue
from roquet.model.results import PullResult, PullStatus, SendReceipt, SendStatus
from roquet.model.subscription import MessageModel
from roquet.net.tls import Tls
from roquet.rules.replication.read_from import ReadFrom
from roquet.wire.records.compression import Compression

__all__ = [
    "CallError",
    "CallRefused",
    "CallTimeout",
    "Chance",
    "ClientConfig",
    "Compression",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "ConsumeFrom",
    "ConsumerConfig",
    "FieldError",
    "KeyHash",
    "MachineRoom",
    "Message",
    "MessageIllegal",
    "MessageModel",
    "MessageQueue",
    "NotFound",
    "PopConsumer",
    "PoppedMessage",
    "Producer",
    "ProducerConfig",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReadFrom",
    "ReceivedMessage",
    "RecordError",
    "RemoteProtocolError",
    "ReplyMessage",
    "RoquetError",
    "SendReceipt",
    "SendStatus",
    "StoredMessage",
    "Tls",
    "Transaction",
    "TransactionProducer",
    "TransactionReceipt",
    "TransactionState",
    "UsageError",
]
