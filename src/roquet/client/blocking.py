"""Blocking client: producers and consumers without async, run on a shared event loop thread.

    with blocking.Producer("127.0.0.1:9876", group="shop") as producer:
        receipt = producer.send("orders", b"...")

All clients of a process share one thread, which does the waiting. Any number of threads may use
them.
"""

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType, TracebackType
from typing import Any, Final, Generic, Self, TypeVar, Unpack, cast

from roquet.client import pop, pull, push
from roquet.client import producer as sending
from roquet.client import transaction as transacting
from roquet.client.config import ConsumeFrom, ConsumerConfig, ProducerConfig, Selector
from roquet.client.connection.loop_thread import LoopThread
from roquet.client.connection.stop_signals import PROCESS, StopSignals, is_main_thread
from roquet.client.consumer import FETCH_TIMEOUT_MS, Consumer
from roquet.client.popping.pop_batch import PoppedMessage as AsyncPoppedMessage
from roquet.client.pull import POLL_COUNT
from roquet.client.reading.handler_pool import AsyncMessageHandler
from roquet.client.reading.handler_result import ALREADY_SETTLED
from roquet.client.reading.message import InboundMessage
from roquet.client.reading.message import ReceivedMessage as AsyncReceivedMessage
from roquet.client.reading.request_reply import ReplyMessage
from roquet.client.rebalance.listeners import RebalanceListener
from roquet.client.sending.delivery import RoundRobin
from roquet.client.sending.prepare import MessageFields, build_message
from roquet.client.sending.send_many import IN_FLIGHT
from roquet.client.transaction_check import TransactionCheck
from roquet.model.errors import (
    CallError,
    CallRefused,
    CallTimeout,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    FieldError,
    MessageIllegal,
    RecordError,
    RemoteProtocolError,
    RoquetError,
    UsageError,
)
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.model.results import PullResult, SendReceipt
from roquet.model.subscription import ALL
from roquet.rules.replication.read_from import ReadFrom

__all__ = [
    "CallError",
    "CallRefused",
    "CallTimeout",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "ConsumeFrom",
    "ConsumerConfig",
    "FieldError",
    "Message",
    "MessageIllegal",
    "PopConsumer",
    "PoppedMessage",
    "Producer",
    "ProducerConfig",
    "PullConsumer",
    "PushConsumer",
    "ReadFrom",
    "ReceivedMessage",
    "RecordError",
    "RemoteProtocolError",
    "RoquetError",
    "TransactionProducer",
    "UsageError",
]

T = TypeVar("T")
C = TypeVar("C", bound=Consumer)

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class ReceivedMessage(InboundMessage):
    """A message settled by its methods; `with message:` settles it by the block's outcome."""

    def __init__(self, message: InboundMessage, thread: LoopThread) -> None:
        self.__dict__.update(message.__dict__)
        self._message = message
        self._thread = thread
        self._loop = thread.loop
        self.was_settled = False
        """Whether one of the methods below has settled the message."""

    def ack(self) -> None:
        """Acknowledge the message: it never comes again once the offset is committed."""
        self.was_settled = True
        self._loop.call_soon_threadsafe(self._message.settle)

    def nack(self, delay_ms: int | None = None) -> None:
        """Let the message come again after a pause, which by default grows with each retry."""
        if delay_ms is not None and delay_ms < 0:
            raise UsageError(f"a message cannot come again after {delay_ms} ms")
        self.was_settled = True
        self._loop.call_soon_threadsafe(self._message.fail, delay_ms)

    def dead_letter(self) -> None:
        """Move the message to the group's dead letters, topic `%DLQ%` and the group's name."""
        self.was_settled = True
        self._loop.call_soon_threadsafe(self._message.give_up)

    def reply(self, body: bytes, *, properties: Mapping[str, str] = _NONE) -> bool:
        """Answer a request; return False when its producer has gone or waits no more."""
        message = cast("AsyncReceivedMessage", self._message)
        return self._thread.wait(message.reply(body, properties=properties))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.ack()
        else:
            self.nack()


M = TypeVar("M", bound=ReceivedMessage)
S = TypeVar("S", bound=push.PushConsumer | pop.PopConsumer)
R = TypeVar("R", bound=push.PushConsumer | pull.PullConsumer)

BlockingHandler = Callable[[M], object]


class Producer:
    """Sends messages; see `roquet.client.Producer`.

    Each sending thread has its own round-robin position among the queues.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str = sending.DEFAULT_GROUP,
        config: ProducerConfig | None = None,
    ) -> None:
        self._producer = sending.Producer(namesrv, group=group, config=config)
        self._thread = LoopThread.shared()
        self._caller = threading.local()

    @property
    def client_id(self) -> str:
        """The id by which brokers know this producer."""
        return self._producer.client_id

    def start(self) -> None:
        """Open connections; `with` does this."""
        self._thread.wait(self._producer.start())

    def flush(self, timeout_ms: int | None = None) -> bool:
        """Send lingering messages now, and wait until earlier sends of all threads have ended.

        Returns False when some are still under way after `timeout_ms`.
        """
        return self._thread.wait(self._producer.flush(timeout_ms))

    def close(self) -> None:
        """Send lingering messages, leave the group and close the connections."""
        self._thread.wait(self._producer.close())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendReceipt:
        """Send one message and return when the broker has stored it.

        A selector is called on the event loop's thread.
        """
        return self._thread.wait(
            self._producer.send_in_turn(
                self._turn(), build_message(message, body, fields), selector, timeout_ms
            )
        )

    def send_oneway(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        selector: Selector | None = None,
        **fields: Unpack[MessageFields],
    ) -> None:
        """Hand one message to the network without an acknowledgement."""
        self._thread.wait(self._producer.send_oneway(message, body, selector=selector, **fields))

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendReceipt:
        """Send messages of one topic to one queue, all or none."""
        return self._thread.wait(
            self._producer.send_batch(messages, selector=selector, timeout_ms=timeout_ms)
        )

    def recall(self, topic: str, handle: str | None, *, timeout_ms: int | None = None) -> str:
        """Cancel a delayed message by its receipt's handle, before it is due; return its id."""
        return self._thread.wait(self._producer.recall(topic, handle, timeout_ms=timeout_ms))

    def request(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> ReplyMessage:
        """Send one message and return the reply of the consumer that handles it."""
        return self._thread.wait(
            self._producer.request(
                message, body, selector=selector, timeout_ms=timeout_ms, **fields
            )
        )

    def _turn(self) -> RoundRobin:
        """The calling thread's round-robin position."""
        turn: RoundRobin | None = getattr(self._caller, "turn", None)
        if turn is None:
            turn = self._caller.turn = self._producer.new_round_robin()
        return turn

    def send_many(
        self, messages: Iterable[Message], *, in_flight: int = IN_FLIGHT
    ) -> Sequence[SendReceipt]:
        """Send any number of messages in batches; return the receipts in the order of the messages.

        `messages` is iterated on the event loop's thread, which must not be blocked.
        """

        async def all_of_them() -> Sequence[SendReceipt]:
            return await self._producer.send_many(messages, in_flight=in_flight)

        return self._thread.wait(all_of_them())


class TransactionProducer(Producer):
    """Sends messages that are delivered only if local work succeeds as well.

        with producer.transaction("orders", b"...", keys="4711") as tx:
            database.insert(...)                        # raising rolls the message back

    See `roquet.client.TransactionProducer`. A check that is a plain `def` is called in a thread.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        check: TransactionCheck,
        topics: Sequence[str] = (),
        config: ProducerConfig | None = None,
    ) -> None:
        super().__init__(namesrv, group=group, config=config)
        self._transactions = transacting.TransactionProducer(
            namesrv, group=group, check=check, topics=topics, config=config
        )
        self._producer = self._transactions

    @contextmanager
    def transaction(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> Iterator[transacting.Transaction]:
        """Commit a message at the normal end of a block, and roll it back when the block raises."""
        begin, wait = self._transactions.transaction, self._thread.wait
        whole_message = build_message(message, body, fields)
        tx = wait(_call(begin, whole_message, selector=selector, timeout_ms=timeout_ms))
        wait(tx.__aenter__())
        try:
            yield tx
        except BaseException as error:
            wait(tx.__aexit__(type(error), error, error.__traceback__))
            raise
        wait(tx.__aexit__(None, None, None))

    def send_in_transaction(
        self,
        message: Message | str,
        body: bytes | None = None,
        *,
        local: transacting.LocalTransaction,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> transacting.TransactionReceipt:
        """Send a message in a transaction in one call; `local` runs in a thread."""
        return self._thread.wait(
            self._transactions.send_in_transaction(
                message, body, local=local, timeout_ms=timeout_ms, **fields
            )
        )


class _Consumer(Generic[C, M]):
    """Methods of all blocking consumers; see `roquet.client.consumer`."""

    def __init__(self, consumer: C, message_class: type[M]) -> None:
        self._consumer = consumer
        self._message_class = message_class
        self._thread = LoopThread.shared()
        self._signals = StopSignals(
            self._signalled, is_main_thread, self._end_program, consumer._config.close_timeout_ms
        )
        self._is_closing = False

    @property
    def client_id(self) -> str:
        """The id by which brokers know this member."""
        return self._consumer.client_id

    @property
    def subscriptions(self) -> Mapping[str, str]:
        """The expression of each subscribed topic."""
        return self._consumer.subscriptions

    def assignment(self) -> Sequence[MessageQueue]:
        """The queues assigned to this member now."""
        return self._consumer.assignment()

    def lag(self) -> Mapping[MessageQueue, int]:
        """Unhandled messages of each assigned queue, by the brokers' current offsets."""
        return self._thread.wait(self._consumer.lag())

    def pause(self, *queues: MessageQueue) -> None:
        """Stop handing out messages of some queues, or of all, until `resume`."""
        self._thread.wait(_call(self._consumer.pause, *queues))

    def resume(self, *queues: MessageQueue) -> None:
        """Hand out messages of some queues again, or of all."""
        self._thread.wait(_call(self._consumer.resume, *queues))

    def paused(self) -> Sequence[MessageQueue]:
        """The paused queues."""
        return self._thread.wait(_call(self._consumer.paused))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read an assigned queue from an offset on."""
        self._thread.wait(_call(self._consumer.seek, queue, offset))

    def seek_to_time(self, queue: MessageQueue, stored_ms: int) -> None:
        """Read an assigned queue from the first message stored at or after a time."""
        self._thread.wait(self._consumer.seek_to_time(queue, stored_ms))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Read an assigned queue from the oldest message that the broker still has."""
        self._thread.wait(self._consumer.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Read an assigned queue from its end: only messages stored from now on."""
        self._thread.wait(self._consumer.seek_to_end(queue))

    def start(self) -> None:
        """Join the group; `with` does this."""
        self._thread.wait(self._consumer.start())
        self._signals.open()

    def stop(self) -> None:
        """Stop handing out messages: `run` and `messages` end. A handler may call this."""
        self._thread.loop.call_soon_threadsafe(self._consumer.stop)

    def close(self) -> None:
        """Leave the group in good order; may be called while another thread is in `run`."""
        self._is_closing = True
        try:
            self._thread.wait(self._consumer.close())
        finally:
            self._signals.close()

    def _signalled(self) -> None:
        self._thread.loop.call_soon_threadsafe(self._consumer.finish)

    def _end_program(self) -> None:
        """End the main thread, as the signal would have done by default."""
        if not self._is_closing:
            PROCESS.end_main_thread()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next(self, timeout_ms: int | None = None) -> M | None:
        """Return the next message; None after the timeout, or when the consumer is closed."""
        if (message := self._next(timeout_ms)) is None:
            self._signals.note_empty_read()
        return message

    def _next(self, timeout_ms: int | None = None) -> M | None:
        self._signals.note_reader()
        message = self._thread.wait(self._consumer.next(timeout_ms))
        return None if message is None else self._message_class(message, self._thread)

    def fetch(self, count: int, timeout_ms: int = FETCH_TIMEOUT_MS) -> Sequence[M]:
        """Return up to `count` messages; fewer after the timeout."""
        self._signals.note_reader()
        return self._wrapped(self._thread.wait(self._consumer.fetch(count, timeout_ms)))

    def _wrapped(self, messages: Sequence[InboundMessage]) -> Sequence[M]:
        """Wrap the messages of one read; may end the program when a signal is why it is empty."""
        if not messages:
            self._signals.note_empty_read()
        return [self._message_class(message, self._thread) for message in messages]

    def messages(self) -> Iterator[M]:
        """Iterate over messages until `stop`, `close`, SIGTERM or Ctrl-C."""
        while (message := self._next()) is not None:
            yield message
        self._signals.raise_if_interrupted()

    def run(self, handler: BlockingHandler[M] | AsyncMessageHandler) -> None:
        """Call a function with every message until `stop`, `close`, SIGTERM or Ctrl-C.

        A plain `def` is called in threads, an `async def` on the event loop's own thread. Running
        handlers end before `run` returns, within `close_timeout_ms` after a signal. After Ctrl-C it
        raises KeyboardInterrupt.
        """
        self._signals.note_reader()
        if inspect.iscoroutinefunction(handler):
            self._thread.wait(self._consumer.run(cast("AsyncMessageHandler", handler)))
            self._signals.raise_if_interrupted()
            return
        plain = cast("BlockingHandler[M]", handler)

        def handle(message: InboundMessage) -> object:
            wrapped = self._message_class(message, self._thread)
            result = plain(wrapped)
            return ALREADY_SETTLED if result is None and wrapped.was_settled else result

        self._thread.wait(self._consumer.run(handle))
        self._signals.raise_if_interrupted()


class _Subscriber(_Consumer[S, M]):
    """Subscriptions of push and pop consumers."""

    def subscribe(self, topic: str, tags: str = ALL, *, sql: str | None = None) -> None:
        """Subscribe to a topic: to all messages, or to those with one of some tags (`A || B`).

        `sql` filters by properties instead.
        """
        self._thread.wait(_call(self._consumer.subscribe, topic, tags, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """End the subscription to a topic."""
        self._thread.wait(_call(self._consumer.unsubscribe, topic))


class _Rebalanced(_Consumer[R, M]):
    """Rebalance listeners of push and pull consumers."""

    def on_assigned(self, listener: RebalanceListener) -> None:
        """Call a function, on the loop's thread, with newly assigned queues."""
        self._consumer.on_assigned(listener)

    def on_revoked(self, listener: RebalanceListener) -> None:
        """Call a function, on the loop's thread, with queues that go to another member."""
        self._consumer.on_revoked(listener)

    def on_lost(self, listener: RebalanceListener) -> None:
        """Call a function, on the loop's thread, with lost ordered queues."""
        self._consumer.on_lost(listener)


class PushConsumer(
    _Subscriber[push.PushConsumer, ReceivedMessage], _Rebalanced[push.PushConsumer, ReceivedMessage]
):
    """A member of a group that shares all queues of its topics."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        topic: str | None = None,
        tags: str = ALL,
        sql: str | None = None,
        config: ConsumerConfig | None = None,
    ) -> None:
        super().__init__(
            push.PushConsumer(namesrv, group=group, topic=topic, tags=tags, sql=sql, config=config),
            ReceivedMessage,
        )


class PullConsumer(_Rebalanced[pull.PullConsumer, ReceivedMessage]):
    """Reads the queues that you name, from offsets that you choose."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        config: ConsumerConfig | None = None,
    ) -> None:
        super().__init__(pull.PullConsumer(namesrv, group=group, config=config), ReceivedMessage)

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic; empty when no name server knows it."""
        return self._thread.wait(self._consumer.queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        count: int = pull.PULL_COUNT,
        *,
        tags: str = ALL,
        sql: str | None = None,
        wait_ms: int = 0,
    ) -> PullResult:
        """Return messages from an offset on, and wait up to `wait_ms` for the first new one."""
        return self._thread.wait(
            self._consumer.pull(queue, offset, count, tags=tags, sql=sql, wait_ms=wait_ms)
        )

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the queue's oldest message."""
        return self._thread.wait(self._consumer.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message will get."""
        return self._thread.wait(self._consumer.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, stored_ms: int) -> int:
        """The offset of the first message stored at or after a time."""
        return self._thread.wait(self._consumer.offset_by_time(queue, stored_ms))

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset; None when there is none."""
        return self._thread.wait(self._consumer.committed(queue))

    def commit(self, queue: MessageQueue | None = None, offset: int | None = None) -> None:
        """Commit an offset for the group; see `roquet.client.PullConsumer`."""
        self._thread.wait(self._consumer.commit(queue, offset))

    def assign(
        self, queues: Sequence[MessageQueue], *, tags: str = ALL, sql: str | None = None
    ) -> None:
        """Read exactly these queues, from the group's committed offsets on."""
        self._thread.wait(self._consumer.assign(queues, tags=tags, sql=sql))

    def subscribe(self, topic: str, tags: str = ALL, *, sql: str | None = None) -> None:
        """Read this member's share of a topic: all messages, or those with one of some tags.

        `sql` filters by properties instead.
        """
        self._thread.wait(self._consumer.subscribe(topic, tags, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """End the subscription to a topic."""
        self._thread.wait(_call(self._consumer.unsubscribe, topic))

    def poll(
        self, count: int = POLL_COUNT, timeout_ms: int = FETCH_TIMEOUT_MS
    ) -> Sequence[ReceivedMessage]:
        """Return up to `count` waiting messages; see `roquet.client.PullConsumer`."""
        self._signals.note_reader()
        return self._wrapped(self._thread.wait(self._consumer.poll(count, timeout_ms)))


class PoppedMessage(ReceivedMessage):
    """A message taken for a limited time; see `roquet.client.PoppedMessage`."""

    def extend(self, invisible_ms: int) -> None:
        """Keep the message for this long from now; CallRefused when its time has passed already."""
        message = cast("AsyncPoppedMessage", self._message)
        self._thread.wait(message.extend(invisible_ms))


class PopConsumer(_Subscriber[pop.PopConsumer, PoppedMessage]):
    """A member of a group that takes messages from any queue, as many as it can handle."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        topic: str | None = None,
        tags: str = ALL,
        sql: str | None = None,
        config: ConsumerConfig | None = None,
    ) -> None:
        super().__init__(
            pop.PopConsumer(namesrv, group=group, topic=topic, tags=tags, sql=sql, config=config),
            PoppedMessage,
        )


async def _call(act: Callable[..., T], *args: Any, **named: Any) -> T:
    """Run a plain function as a coroutine, since its objects belong to the loop's thread."""
    return act(*args, **named)
