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
    metrics                                     counts of sends, receives and handlers

Each line imports only from those below it; a contract in pyproject.toml checks that.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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
        BodyError,
        CallError,
        CallRefused,
        CallTimeout,
        CodecMissing,
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
    from roquet.model.results import PullResult, PullStatus, ReplyMessage, SendReceipt, SendStatus
    from roquet.model.subscription import MessageModel
    from roquet.net.tls import Tls
    from roquet.rules.allocate import Strategy
    from roquet.rules.health import ClientHealth, ConsumerHealth, StuckHandler
    from roquet.rules.replication.read_from import ReadFrom
    from roquet.wire.records.compression import Compression

__all__ = [
    "BatchHandler",
    "BodyError",
    "CallError",
    "CallRefused",
    "CallTimeout",
    "Chance",
    "ClientConfig",
    "ClientHealth",
    "CodecMissing",
    "Compression",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "ConsumeFrom",
    "ConsumerConfig",
    "ConsumerHealth",
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
    "StuckHandler",
    "Tls",
    "Transaction",
    "TransactionCheck",
    "TransactionProducer",
    "TransactionReceipt",
    "TransactionState",
    "UsageError",
]

_NAMES_BY_MODULE: Final = {
    "client.config": "ClientConfig ConsumeFrom ConsumerConfig ProducerConfig Selector SpanProvider",
    "client.pop": "PopConsumer",
    "client.popping.pop_batch": "PoppedMessage",
    "client.producer": "Producer",
    "client.pull": "PullConsumer",
    "client.push": "PushConsumer",
    "client.reading.handler_pool": "MessageHandler",
    "client.reading.message": "ReceivedMessage",
    "client.reading.message_batch": "BatchHandler",
    "client.rebalance.listeners": "RebalanceListener",
    "client.sending.prepare": "MessageFields",
    "client.sending.selectors": "Chance KeyHash MachineRoom",
    "client.sending.send_many": "SendMany",
    "client.transaction": "LocalTransaction Transaction TransactionProducer TransactionReceipt",
    "client.transaction_check": "TransactionCheck TransactionState",
    "model.errors": "BodyError CallError CallRefused CallTimeout CodecMissing ConfigError"
    " ConnectFailed ConnectionLost FieldError MessageIllegal NotFound RecordError"
    " RemoteProtocolError RoquetError UsageError",
    "model.message": "Message StoredMessage",
    "model.queue": "MessageQueue",
    "model.results": "PullResult PullStatus ReplyMessage SendReceipt SendStatus",
    "model.subscription": "MessageModel",
    "net.tls": "Tls",
    "rules.allocate": "Strategy",
    "rules.health": "ClientHealth ConsumerHealth StuckHandler",
    "rules.replication.read_from": "ReadFrom",
    "wire.records.compression": "Compression",
}
_MODULES: Final = {
    name: f"roquet.{m}" for m, names in _NAMES_BY_MODULE.items() for name in names.split()
}

if not TYPE_CHECKING:  # a checker that saw it would accept every name

    def __getattr__(name: str) -> object:
        """Import what is asked for: a program that only sends never loads the consumers."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__() -> list[str]:
        """Names for completion, loaded or not."""
        return sorted({*globals(), *__all__})
