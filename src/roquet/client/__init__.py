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
    config · arguments                          settings · checks of what users pass

Each line imports only from those below it; a contract in pyproject.toml checks that.
"""

from roquet.client.config import (
    ClientConfig,
    ConsumeFrom,
    ConsumerConfig,
    ProducerConfig,
    Selector,
    SpanProvider,
)
from roquet.client.pop import PopConsumer
from roquet.client.popping.pop_batch import PoppedMessage
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.client.push import PushConsumer
from roquet.client.reading.handler_pool import MessageHandler
from roquet.client.reading.message import ReceivedMessage
from roquet.client.reading.message_batch import BatchHandler
from roquet.client.reading.request_reply import ReplyMessage
from roquet.client.rebalance.listeners import RebalanceListener
from roquet.client.sending.prepare import MessageFields
from roquet.client.sending.selectors import Chance, KeyHash, MachineRoom
from roquet.client.sending.send_many import SendMany
from roquet.client.transaction import (
    LocalTransaction,
    Transaction,
    TransactionProducer,
    TransactionReceipt,
)
from roquet.client.transaction_check import TransactionCheck, TransactionState
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
from roquet.rules.allocate import Strategy
from roquet.rules.replication.read_from import ReadFrom
from roquet.wire.records.compression import Compression

__all__ = [
    "BatchHandler",
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
    "LocalTransaction",
    "MachineRoom",
    "Message",
    "MessageFields",
    "MessageHandler",
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
    "RebalanceListener",
    "ReceivedMessage",
    "RecordError",
    "RemoteProtocolError",
    "ReplyMessage",
    "RoquetError",
    "Selector",
    "SendMany",
    "SendReceipt",
    "SendStatus",
    "SpanProvider",
    "StoredMessage",
    "Strategy",
    "Tls",
    "Transaction",
    "TransactionCheck",
    "TransactionProducer",
    "TransactionReceipt",
    "TransactionState",
    "UsageError",
]
