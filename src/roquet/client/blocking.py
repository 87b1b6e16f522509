"""Blocking client: producers and consumers without async, run on a shared event loop thread.

    with blocking.Producer("127.0.0.1:9876", group="shop") as producer:
        receipt = producer.send("orders", b"...")

All clients of a process share one thread, which does the waiting. Any number of threads may use
them.
"""

import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial, wraps
from types import MappingProxyType
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from roquet.client import pop, push
from roquet.client import producer as sending
from roquet.client import pull as pulling
from roquet.client import transaction as transacting
from roquet.client.arguments import (
    SubscribedTopics,
    check_function,
    check_reason,
    check_timeout,
    is_coroutine_function,
)
from roquet.client.config import (
    ClientConfig,
    ConsumeFrom,
    ConsumerConfig,
    ProducerConfig,
    Selector,
    SpanProvider,
)
from roquet.client.connection.loop_thread import LoopThread
from roquet.client.connection.stop_signals import PROCESS, StopSignals, is_main_thread
from roquet.client.consumer import FETCH_TIMEOUT_MS, Consumer
from roquet.client.popping.pop_batch import PoppedMessage as AsyncPoppedMessage
from roquet.client.pull import POLL_COUNT
from roquet.client.reading.handler_contexts import in_contexts
from roquet.client.reading.handler_pool import AsyncMessageHandler
from roquet.client.reading.handler_result import ALREADY_SETTLED
from roquet.client.reading.message import InboundMessage, give_up, retry_later, settle
from roquet.client.reading.message import ReceivedMessage as AsyncReceivedMessage
from roquet.client.reading.message_batch import (
    BATCH_SIZE,
    BATCH_WAIT_MS,
    AsyncBatchHandler,
    BatchInbox,
    MessageBatch,
)
from roquet.client.rebalance.listeners import RebalanceListener
from roquet.client.sending.delivery import RoundRobin
from roquet.client.sending.prepare import MessageFields, build_message
from roquet.client.sending.selectors import Chance, KeyHash, MachineRoom
from roquet.client.sending.send_many import IN_FLIGHT
from roquet.client.transaction import LocalTransaction, Transaction, TransactionReceipt
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
from roquet.model.message import Message, StoredMessage, V, V_co
from roquet.model.queue import MessageQueue
from roquet.model.results import PullResult, PullStatus, ReplyMessage, SendReceipt, SendStatus
from roquet.model.subscription import ALL, MessageModel
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

T = TypeVar("T")
P = ParamSpec("P")
A = TypeVar("A", bound=sending.Producer[Any] | Consumer[Any])
C = TypeVar("C", bound=Consumer[Any])

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class ReceivedMessage(InboundMessage[V_co]):
    """A message settled by its methods; `with message:` settles it by the block's outcome."""

    def __init__(self, message: InboundMessage[V_co], thread: LoopThread) -> None:
        self.__dict__.update(message.__dict__)
        self._message = message
        self._thread = thread
        self._loop = thread.loop

    @cached_property
    def body(self) -> bytes:
        """The content; see `roquet.client.ReceivedMessage`."""
        return self._message.body  # which notes there if it cannot be read here

    def ack(self) -> None:
        """Acknowledge the message: it never comes again once the offset is committed."""
        self._settle(settle)

    def nack(self, delay_ms: int | None = None) -> None:
        """Let the message come again after a pause, which by default grows with each retry."""
        check_timeout(delay_ms, "delay_ms")
        self._settle(retry_later, delay_ms)

    def dead_letter(self, reason: str | None = None) -> None:
        """Move the message to the group's dead letters, with the reason as a property there."""
        self._settle(give_up, check_reason(reason))

    def _settle(self, function: Callable[..., None], *arguments: object) -> None:
        self._is_settled = True
        self._message.has_failed = function is not settle  # the loop gets it after a trace's end
        self._loop.call_soon_threadsafe(function, self._message, *arguments)

    def reply(self, body: bytes, *, properties: Mapping[str, str] = _NONE) -> bool:
        """Answer a request; return False when its producer has gone or waits no more."""
        message = cast("AsyncReceivedMessage[V_co]", self._message)
        return self._thread.wait(message.reply(body, properties=properties))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            self.ack()
        else:
            self._settle(retry_later, None, error)


M = TypeVar("M", bound=ReceivedMessage[Any])
AsyncM = TypeVar("AsyncM", bound=AsyncReceivedMessage[Any])
S = TypeVar("S", bound=push.PushConsumer[Any] | pop.PopConsumer[Any])
R = TypeVar("R", bound=push.PushConsumer[Any] | pulling.PullConsumer[Any])

MessageHandler: TypeAlias = Callable[[M], object]
"""A user's function of a message: a return acknowledges the message, an exception fails it."""

BatchHandler: TypeAlias = Callable[[Sequence[M]], object]
"""A user's function of several messages: a return acknowledges those that are not settled yet, an
exception fails them."""


def _waiting(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Make a method that waits for the coroutine method of its name of the asyncio client."""

    @wraps(method)
    def wait(self: Any, /, *args: P.args, **named: P.kwargs) -> T:
        act = getattr(self._client, method.__name__)
        return cast("T", self._thread.wait(act(*args, **named)))

    # The docstring shows calls of the asyncio client, which the twin must not be taken for.
    wait.__doc__ = (method.__doc__ or "").replace("await ", "").replace("`async with`", "`with`")
    return _plain(wait)


def _calling(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make a method that calls the one of its name of the asyncio client, on the loop's thread."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **named: P.kwargs) -> T:
        async def act() -> T:
            return cast("T", getattr(self._client, method.__name__)(*args, **named))

        return cast("T", self._thread.wait(act()))

    return _plain(call)


def _plain(twin: Callable[P, T]) -> Callable[P, T]:
    """Let a twin be no coroutine function for those who look at what it wraps."""
    function = cast("Any", twin)
    function.__signature__ = inspect.signature(twin)
    function.__module__ = __name__
    del function.__wrapped__
    return twin


class _Client(Generic[A]):
    """A client that runs on the shared loop's thread."""

    def _use(self, client: A) -> None:
        self._client = client
        self._thread = LoopThread.shared()

    @property
    def client_id(self) -> str:
        """The id by which brokers know this client."""
        return self._client.client_id

    start = _waiting(sending.Producer.start)
    close = _waiting(sending.Producer.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Producer(_Client[sending.Producer[V]], Generic[V]):
    """Sends messages; see `roquet.client.Producer`.

    Each sending thread has its own round-robin position among the queues.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str = sending.DEFAULT_GROUP,
        config: ProducerConfig | None = None,
        encode: Callable[[V], bytes] | None = None,
    ) -> None:
        self._use(sending.Producer(namesrv, group=group, config=config, encode=encode))
        self._caller = threading.local()

    flush = _waiting(sending.Producer.flush)
    health = _calling(sending.Producer.health)
    send_oneway = _waiting(sending.Producer[V].send_oneway)
    send_batch = _waiting(sending.Producer[V].send_batch)
    recall = _waiting(sending.Producer.recall)
    request = _waiting(sending.Producer[V].request)

    @overload
    def send(
        self,
        message: Message[V],
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendReceipt: ...
    @overload
    def send(
        self,
        topic: str,
        /,
        body: V,
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendReceipt: ...
    def send(
        self,
        message: Message[V] | str,
        body: V | None = None,
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendReceipt:
        """Send one message, a `Message` or its parts, and return when the broker has stored it.

        The parts are a topic, a body, and as keywords tag, keys, order_key, properties, flag,
        delay_level, delay, deliver_at, priority. A selector is called on the event loop's thread.
        """
        return self._thread.wait(
            self._client._send_in_turn(
                self._turn(), build_message(message, body, fields), selector, timeout_ms
            )
        )

    def _turn(self) -> RoundRobin:
        turn: RoundRobin | None = getattr(self._caller, "turn", None)
        if turn is None:
            turn = self._caller.turn = self._client._new_round_robin()
        return turn

    def send_many(
        self, messages: Iterable[Message[V]], *, in_flight: int = IN_FLIGHT
    ) -> Sequence[SendReceipt]:
        """Send any number of messages in batches; return the receipts in the order of the messages.

        `messages` is iterated on the event loop's thread, which must not be blocked.
        """

        async def all_of_them() -> Sequence[SendReceipt]:
            return await self._client.send_many(messages, in_flight=in_flight)

        return self._thread.wait(all_of_them())


class TransactionProducer(Producer[V]):
    """Sends messages that are delivered only if local work succeeds as well.

        with producer.transaction("orders", b"...", keys="4711") as tx:
            database.insert(...)                        # raising rolls the message back

    See `roquet.client.TransactionProducer`. A check that is a plain `def` is called in a thread.
    """

    _client: transacting.TransactionProducer[V]

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        check: TransactionCheck,
        topics: Sequence[str] = (),
        config: ProducerConfig | None = None,
        encode: Callable[[V], bytes] | None = None,
    ) -> None:
        self._use(
            transacting.TransactionProducer(
                namesrv, group=group, check=check, topics=topics, config=config, encode=encode
            )
        )
        self._caller = threading.local()

    send_in_transaction = _waiting(transacting.TransactionProducer[V].send_in_transaction)

    @overload
    def transaction(
        self,
        message: Message[V],
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> AbstractContextManager[transacting.Transaction]: ...
    @overload
    def transaction(
        self,
        topic: str,
        /,
        body: V,
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> AbstractContextManager[transacting.Transaction]: ...
    @contextmanager
    def transaction(
        self,
        message: Message[V] | str,
        body: V | None = None,
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> Iterator[transacting.Transaction]:
        """Commit a message at the normal end of a block, and roll it back when the block raises."""
        wait = self._thread.wait
        whole_message = build_message(message, body, fields)
        tx = self._begin(whole_message, selector=selector, timeout_ms=timeout_ms)
        wait(tx.__aenter__())
        try:
            yield tx
        except BaseException as error:
            wait(tx.__aexit__(type(error), error, error.__traceback__))
            raise
        wait(tx.__aexit__(None, None, None))

    _begin = _calling(transacting.TransactionProducer[V].transaction)


class _Consumer(_Client[C], Generic[C, M, AsyncM]):
    """Methods of all blocking consumers; see `roquet.client.consumer`."""

    _message_class: type[Any]

    def _use(self, client: C) -> None:
        self._client = client
        self._thread = LoopThread.shared()
        self._signals = StopSignals(
            self._signalled, is_main_thread, self._end_program, client._config.close_timeout_ms
        )
        self._is_closing = False

    @property
    def name_servers(self) -> Sequence[str]:
        """The name servers' addresses."""
        return self._client.name_servers

    @property
    def is_open(self) -> bool:
        """True from the start until the close, unless all background tasks have ended."""
        return self._client.is_open

    @property
    def subscriptions(self) -> Mapping[str, str]:
        """The expression of each subscribed topic."""
        return self._client.subscriptions

    @property
    def undecodable(self) -> int:
        """Number of bodies that `decode` could not read; a message counts at each of its tries."""
        return self._client.undecodable

    def assignment(self) -> Sequence[MessageQueue]:
        """The queues assigned to this member now."""
        return self._client.assignment()

    lag = _waiting(Consumer.lag)
    health = _calling(Consumer.health)
    pause = _calling(Consumer.pause)
    resume = _calling(Consumer.resume)
    paused = _calling(Consumer.paused)
    seek = _calling(Consumer.seek)
    seek_to_time = _waiting(Consumer.seek_to_time)
    seek_to_begin = _waiting(Consumer.seek_to_begin)
    seek_to_end = _waiting(Consumer.seek_to_end)

    def start(self) -> None:
        """Join the group; `with` does this."""
        self._thread.wait(self._client.start())
        self._signals.open()

    def stop(self) -> None:
        """Stop handing out messages: `run` and `messages` end. A handler may call this."""
        self._thread.loop.call_soon_threadsafe(self._client.stop)

    def close(self) -> None:
        """Leave the group in good order; may be called while another thread is in `run`."""
        self._is_closing = True
        try:
            self._thread.wait(self._client.close())
        finally:
            self._signals.close()

    def _signalled(self) -> None:
        self._thread.loop.call_soon_threadsafe(self._client._finish)

    def _end_program(self) -> None:
        """End the main thread, as the signal would have done by default."""
        if not self._is_closing:
            PROCESS.end_main_thread()

    def next(self, timeout_ms: int | None = None) -> M | None:
        """Return the next message; None after the timeout, or when the consumer is closed."""
        if (message := self._next(timeout_ms)) is None:
            self._signals.note_empty_read()
        return message

    def _next(self, timeout_ms: int | None = None) -> M | None:
        self._signals.note_reader()
        message = self._thread.wait(self._client.next(timeout_ms))
        return None if message is None else self._message_class(message, self._thread)

    def fetch(self, count: int, timeout_ms: int = FETCH_TIMEOUT_MS) -> Sequence[M]:
        """Return up to `count` messages; fewer after the timeout."""
        return self._read(self._client.fetch(count, timeout_ms))

    def _read(self, reading: Coroutine[Any, Any, Sequence[InboundMessage[Any]]]) -> Sequence[M]:
        """Wait for messages; may end the program when a signal is why there are none."""
        self._signals.note_reader()
        messages = self._thread.wait(reading)
        if not messages:
            self._signals.note_empty_read()
        return [self._message_class(message, self._thread) for message in messages]

    def messages(self) -> Iterator[M]:
        """Iterate over messages until `stop`, `close`, SIGTERM or Ctrl-C."""
        while (message := self._next()) is not None:
            yield message
        self._signals.raise_if_interrupted()

    def __iter__(self) -> Iterator[M]:
        """Iterate as `messages` does."""
        return self.messages()

    def run(self, handler: MessageHandler[M] | AsyncMessageHandler[AsyncM]) -> None:
        """Call a function with every message until `stop`, `close`, SIGTERM or Ctrl-C.

        A plain `def` is called in threads, an `async def` on the event loop's own thread. Running
        handlers end before `run` returns, within `close_timeout_ms` after a signal. After Ctrl-C it
        raises KeyboardInterrupt.
        """
        self._signals.note_reader()
        check_function(handler, "a handler", "the message")
        client: Consumer[Any] = self._client
        plain = in_contexts(handler, client._config.around)

        def handle(message: InboundMessage[Any]) -> object:
            wrapped = self._message_class(message, self._thread)
            return _result(plain(wrapped), [wrapped])

        is_async = is_coroutine_function(handler)
        self._thread.wait(client.run(handler) if is_async else client._run(handle))
        self._signals.raise_if_interrupted()

    def run_batch(
        self,
        handler: BatchHandler[M] | AsyncBatchHandler[AsyncM],
        *,
        size: int = BATCH_SIZE,
        wait_ms: int = BATCH_WAIT_MS,
    ) -> None:
        """Call a function with up to `size` messages at a time until `stop`, as `run` does.

        See `roquet.client.consumer`. A plain `def` is called in threads, an `async def` on the
        event loop's own thread.
        """
        self._signals.note_reader()
        check_function(handler, "a batch handler", "the messages")
        client: Consumer[Any] = self._client
        plain = in_contexts(handler, client._config.around)

        def handle(batch: MessageBatch[AsyncM]) -> object:
            wrapped = [self._message_class(message, self._thread) for message in batch.messages]
            return _result(plain(wrapped), wrapped)

        if is_coroutine_function(handler):
            work = client.run_batch(handler, size=size, wait_ms=wait_ms)
        else:
            work = client._run(handle, partial(BatchInbox, size=size, wait_ms=wait_ms))
        self._thread.wait(work)
        self._signals.raise_if_interrupted()


def _result(result: object, messages: Sequence[ReceivedMessage[Any]]) -> object:
    """A handler's result, or that it has settled messages, if it returned nothing."""
    is_settled = result is None and any(message.is_settled for message in messages)
    return ALREADY_SETTLED if is_settled else result


class _Subscriber(_Consumer[S, M, AsyncM], Generic[S, M, AsyncM, V_co]):
    """Subscriptions of push and pop consumers."""

    _kind: Callable[..., S]

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        topic: SubscribedTopics | None = None,
        tags: str = ALL,
        sql: str | None = None,
        config: ConsumerConfig | None = None,
        decode: Callable[[bytes], V_co] | None = None,
    ) -> None:
        self._use(
            self._kind(
                namesrv, group=group, topic=topic, tags=tags, sql=sql, config=config, decode=decode
            )
        )

    subscribe = _calling(push.PushConsumer.subscribe)
    unsubscribe = _calling(push.PushConsumer.unsubscribe)


class _Rebalanced(
    _Consumer[R, ReceivedMessage[V_co], AsyncReceivedMessage[V_co]], Generic[R, V_co]
):
    """Rebalance listeners of push and pull consumers."""

    def on_assigned(self, listener: RebalanceListener) -> None:
        """Call a function, on the loop's thread, with newly assigned queues."""
        self._client.on_assigned(listener)

    def on_revoked(self, listener: RebalanceListener) -> None:
        """Call a function, on the loop's thread, with queues that go to another member."""
        self._client.on_revoked(listener)

    def on_lost(self, listener: RebalanceListener) -> None:
        """Call a function, on the loop's thread, with lost ordered queues."""
        self._client.on_lost(listener)


class PushConsumer(
    _Subscriber[push.PushConsumer[V_co], ReceivedMessage[V_co], AsyncReceivedMessage[V_co], V_co],
    _Rebalanced[push.PushConsumer[V_co], V_co],
):
    """A member of a group that shares all queues of its topics."""

    _kind = push.PushConsumer
    _message_class = ReceivedMessage

    rebalance = _waiting(push.PushConsumer.rebalance)


class PullConsumer(_Rebalanced[pulling.PullConsumer[V_co], V_co]):
    """Reads the queues that you name, from offsets that you choose."""

    _message_class = ReceivedMessage

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        config: ConsumerConfig | None = None,
        decode: Callable[[bytes], V_co] | None = None,
    ) -> None:
        self._use(pulling.PullConsumer(namesrv, group=group, config=config, decode=decode))

    queues = _waiting(pulling.PullConsumer.queues)
    pull = _waiting(pulling.PullConsumer.pull)
    min_offset = _waiting(pulling.PullConsumer.min_offset)
    max_offset = _waiting(pulling.PullConsumer.max_offset)
    offset_by_time = _waiting(pulling.PullConsumer.offset_by_time)
    committed = _waiting(pulling.PullConsumer.committed)
    commit = _waiting(pulling.PullConsumer.commit)
    assign = _waiting(pulling.PullConsumer.assign)
    subscribe = _waiting(pulling.PullConsumer.subscribe)
    unsubscribe = _calling(pulling.PullConsumer.unsubscribe)

    def poll(
        self, count: int = POLL_COUNT, timeout_ms: int = FETCH_TIMEOUT_MS
    ) -> Sequence[ReceivedMessage[V_co]]:
        """Return up to `count` waiting messages; see `roquet.client.PullConsumer`."""
        return self._read(self._client.poll(count, timeout_ms))


class PoppedMessage(ReceivedMessage[V_co]):
    """A message taken for a limited time; see `roquet.client.PoppedMessage`."""

    _message: AsyncPoppedMessage[V_co]

    def extend(self, invisible_ms: int) -> None:
        """Keep the message for this long from now; CallRefused when its time has passed already."""
        self._thread.wait(self._message.extend(invisible_ms))

    def suspend(self, delay_ms: int) -> None:
        """Let the message come again after a pause, without counting a try."""
        self._thread.wait(self._message.suspend(delay_ms))
        self._is_settled = True

    @property
    def first_popped_ms(self) -> int:
        """Time of the first pop, by the broker's clock."""
        return self._message.first_popped_ms


class PopConsumer(
    _Subscriber[pop.PopConsumer[V_co], PoppedMessage[V_co], AsyncPoppedMessage[V_co], V_co]
):
    """A member of a group that takes messages from any queue, as many as it can handle."""

    _kind = pop.PopConsumer
    _message_class = PoppedMessage
