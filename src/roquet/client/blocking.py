"""The same producers and consumers without async: the async ones on a loop thread.

    with blocking.Producer("127.0.0.1:9876", group="shop") as producer:
        receipt = producer.send("orders", b"...")

All of a process share one thread, which does the waiting. May be used from any number of threads.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, Unpack, cast

from roquet.client import producer as sending
from roquet.client import pull, push
from roquet.client.config import ConsumerConfig, ProducerConfig
from roquet.client.consumer import FETCH_TIMEOUT_MS, Consumer
from roquet.client.handling import AsyncHandler
from roquet.client.loop_thread import LoopThread
from roquet.client.many import IN_FLIGHT
from roquet.client.outgoing import MessageFields
from roquet.client.received import Received
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.model.results import PullResult, SendReceipt
from roquet.model.subscription import ALL

T = TypeVar("T")
C = TypeVar("C", bound=Consumer)

_PRODUCER: Final = ProducerConfig()
_CONSUMER: Final = ConsumerConfig()


class ReceivedMessage(Received):
    """A message that is told by its methods how it went; `with message:` tells it by outcome."""

    def __init__(self, message: Received, thread: LoopThread) -> None:
        self.__dict__.update(message.__dict__)
        self._message = message
        self._loop = thread.loop

    def ack(self) -> None:
        """It is handled: never again, once progress is saved."""
        self._loop.call_soon_threadsafe(self._message.settle)

    def nack(self, delay_ms: int | None = None) -> None:
        """It shall come again, after a time; by itself the time grows from one try to the next."""
        self._loop.call_soon_threadsafe(self._message.fail, delay_ms)

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


BlockingHandler = Callable[[ReceivedMessage], object]


class Producer:
    """Sends messages; see `roquet.client.Producer`."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str = sending.DEFAULT_GROUP,
        config: ProducerConfig = _PRODUCER,
    ) -> None:
        self._producer = sending.Producer(namesrv, group=group, config=config)
        self._thread = LoopThread.shared()

    @property
    def client_id(self) -> str:
        """What brokers know this producer by."""
        return self._producer.client_id

    def start(self) -> None:
        """Open for sends; `with` does this."""
        self._thread.wait(self._producer.start())

    def close(self) -> None:
        """Leave the group and end the connections."""
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
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendReceipt:
        """Send one message, and return when the broker has stored it."""
        return self._thread.wait(
            self._producer.send(message, body, timeout_ms=timeout_ms, **fields)
        )

    def send_oneway(
        self, message: Message | str, body: bytes | None = None, **fields: Unpack[MessageFields]
    ) -> None:
        """Hand one message to the network; nobody says whether it was stored."""
        self._thread.wait(self._producer.send_oneway(message, body, **fields))

    def send_batch(
        self, messages: Iterable[Message], *, timeout_ms: int | None = None
    ) -> SendReceipt:
        """Send messages of one topic to one queue, all or none."""
        return self._thread.wait(self._producer.send_batch(messages, timeout_ms=timeout_ms))

    def send_many(
        self, messages: Iterable[Message], *, in_flight: int = IN_FLIGHT
    ) -> Sequence[SendReceipt]:
        """Send any number of messages in batches; the receipts in the order of the messages.

        `messages` is read by the event loop's thread: one that waits for something holds it up.
        """

        async def all_of_them() -> Sequence[SendReceipt]:
            return await self._producer.send_many(messages, in_flight=in_flight)

        return self._thread.wait(all_of_them())


class _Consumer(Generic[C]):
    """What both kinds of consumers share; see `roquet.client.consumer`."""

    def __init__(self, consumer: C) -> None:
        self._consumer = consumer
        self._thread = LoopThread.shared()

    @property
    def client_id(self) -> str:
        """What brokers know this member by."""
        return self._consumer.client_id

    @property
    def subscriptions(self) -> Mapping[str, str]:
        """Topics, and which of their messages are wanted."""
        return self._consumer.subscriptions

    def assignment(self) -> Sequence[MessageQueue]:
        """The queues that are this member's now."""
        return self._consumer.assignment()

    def start(self) -> None:
        """Open for work; `with` does this."""
        self._thread.wait(self._consumer.start())

    def stop(self) -> None:
        """Hand out nothing more: `run` and `messages` end. A handler may call this."""
        self._thread.loop.call_soon_threadsafe(self._consumer.stop)

    def close(self) -> None:
        """Leave the group in good order; may be called by another thread while one is in `run`."""
        self._thread.wait(self._consumer.close())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next(self, timeout_ms: int | None = None) -> ReceivedMessage | None:
        """The next message; None when none came in time, or the consumer is closed."""
        message = self._thread.wait(self._consumer.next(timeout_ms))
        return None if message is None else ReceivedMessage(message, self._thread)

    def fetch(self, count: int, timeout_ms: int = FETCH_TIMEOUT_MS) -> Sequence[ReceivedMessage]:
        """So many messages, or fewer when the time is over."""
        found = self._thread.wait(self._consumer.fetch(count, timeout_ms))
        return [ReceivedMessage(message, self._thread) for message in found]

    def messages(self) -> Iterator[ReceivedMessage]:
        """One message after the other, until the consumer is closed."""
        while (message := self.next()) is not None:
            yield message

    def run(self, handler: BlockingHandler | AsyncHandler) -> None:
        """Hand every message to a function, until the consumer is closed.

        A plain `def` is called in threads, an `async def` on the event loop's own thread.
        """
        if inspect.iscoroutinefunction(handler):
            self._thread.wait(self._consumer.run(cast("AsyncHandler", handler)))
            return
        plain = cast("BlockingHandler", handler)
        self._thread.wait(self._consumer.run(lambda m: plain(ReceivedMessage(m, self._thread))))


class PushConsumer(_Consumer[push.PushConsumer]):
    """A member of a group that shares all queues of its topics."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        topic: str | None = None,
        tags: str = ALL,
        config: ConsumerConfig = _CONSUMER,
    ) -> None:
        super().__init__(
            push.PushConsumer(namesrv, group=group, topic=topic, tags=tags, config=config)
        )

    def subscribe(self, topic: str, tags: str = ALL) -> None:
        """Listen to a topic: to all of it, or to messages with one of some tags (`A || B`)."""
        self._thread.wait(_of(self._consumer.subscribe, topic, tags))

    def unsubscribe(self, topic: str) -> None:
        """Listen to a topic no more."""
        self._thread.wait(_of(self._consumer.unsubscribe, topic))

    def on_assigned(self, watcher: push.Watcher) -> None:
        """Tell a function, on the loop's thread, which queues have become this member's."""
        self._consumer.on_assigned(watcher)

    def on_revoked(self, watcher: push.Watcher) -> None:
        """Tell a function, on the loop's thread, which queues are no longer this member's."""
        self._consumer.on_revoked(watcher)


class PullConsumer(_Consumer[pull.PullConsumer]):
    """Reads the queues that you name, from where you say."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        config: ConsumerConfig = _CONSUMER,
    ) -> None:
        super().__init__(pull.PullConsumer(namesrv, group=group, config=config))

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic; none when nobody knows it."""
        return self._thread.wait(self._consumer.queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        count: int = pull.PULL_COUNT,
        *,
        tags: str = ALL,
        wait_ms: int = 0,
    ) -> PullResult:
        """Messages from an offset on: at once, or after waiting so long for the first new one."""
        return self._thread.wait(
            self._consumer.pull(queue, offset, count, tags=tags, wait_ms=wait_ms)
        )

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that the queue holds."""
        return self._thread.wait(self._consumer.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of the queue will get."""
        return self._thread.wait(self._consumer.max_offset(queue))

    def offset_by_time(self, queue: MessageQueue, stored_ms: int) -> int:
        """The offset of the first message stored at a time or later."""
        return self._thread.wait(self._consumer.offset_by_time(queue, stored_ms))

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's saved progress; None when there is none."""
        return self._thread.wait(self._consumer.committed(queue))

    def commit(self, queue: MessageQueue | None = None, offset: int | None = None) -> None:
        """Save an offset as the group's progress; see `roquet.client.PullConsumer`."""
        self._thread.wait(self._consumer.commit(queue, offset))

    def assign(self, queues: Sequence[MessageQueue], *, tags: str = ALL) -> None:
        """Read these queues, and no others, from the group's progress on."""
        self._thread.wait(self._consumer.assign(queues, tags=tags))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read an assigned queue from an offset on."""
        self._thread.wait(_of(self._consumer.seek, queue, offset))


async def _of(act: Callable[..., T], *args: Any) -> T:
    """A plain function as a coroutine: what it touches belongs to the loop's thread."""
    return act(*args)
