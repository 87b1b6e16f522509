"""Channel: queues, exchanges, acknowledgements and prefetch, as kombu asks for them.

A message to a queue goes to the queue's topic. One to an exchange goes to the exchange's topic,
which the queues bound to it read, each with its bindings: no producer needs to know them.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count
from queue import Empty
from typing import Any, Final

from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments

from roquet.client import Message, MessageQueue
from roquet.client.popping.pop_batch import PoppedMessage
from roquet.client.reading.handler_result import log_unreadable
from roquet.client.reading.message import InboundMessage, give_up, release, retry_later, settle
from roquet.integrations.celery import envelope
from roquet.integrations.celery.clients import ClusterClients, TaskQueueReader
from roquet.integrations.celery.topics import exchange_topic, queue_topic
from roquet.log_records import logger
from roquet.model.errors import CodecMissing, RoquetError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.rules.consumption.priority import priority_queue

log = logger(__name__)

HELD_MAX: Final = 2_000
"""Unacknowledged messages of a channel whose prefetch count is 0 or greater."""

SURPLUS_MS: Final = 1_000
"""Messages that a full channel has taken go back to the others after this time."""

GET_MS: Final = 200
"""Time in which `basic_get` finds a message, or None."""

FAR_MS: Final = 60_000
"""A task that is due later is sent to the broker's timer once more; a worker waits for the rest."""

REQUEUE_MS_MAX: Final = 3_600_000
"""Longest pause before a requeued message comes again."""

PRIORITIES_MAX: Final = 32
"""Queues of a topic with priorities, and so different priorities, at most."""

FORKED: Final = "a message cannot be settled in a forked child: only process %d can, which got it"

CLOCK: Final = SYSTEM_CLOCK


class QoS(virtual.QoS):
    """Prefetch of a channel, and the acknowledgements of its messages."""

    channel: "RocketMQChannel"

    def ack(self, delivery_tag: int) -> None:
        """Acknowledge a message."""
        super().ack(delivery_tag)
        self.channel.settle(delivery_tag, settle)

    def reject(self, delivery_tag: int, requeue: bool = False) -> None:
        """Let a message come again, or make a dead letter of it."""
        super().ack(delivery_tag)
        self.channel.settle(delivery_tag, self.channel.requeue if requeue else give_up)


class RocketMQChannel(virtual.Channel):
    """A channel of the virtual transport."""

    QoS = QoS
    supports_fanout = True
    from_transport_options = ("visibility_timeout", "requeue_delay", "delay_max", "recall")
    visibility_timeout = 60
    """Seconds after which a killed worker's messages go to others."""
    requeue_delay: float = 1
    """Seconds before a requeued message comes again; twice as many before each further time."""
    delay_max = 3 * 86_400 - 60
    """Seconds that the brokers hold a message at most; a later task is sent on from there."""
    recall = True
    """Whether a note for `revoke` is sent with each task that waits for its time."""

    def __init__(self, connection: Any, **named: Any) -> None:
        super().__init__(connection, **named)
        self._pid = os.getpid()
        self.invisible_ms = int(self.visibility_timeout * 1_000)
        self._held: dict[int, InboundMessage] = {}
        """Messages by delivery tag, changed on the loop's thread alone."""
        self._inbox: deque[tuple[str, envelope.Payload]] = deque()
        """Queues and messages that no consumer has seen yet."""
        self.readers: dict[str, TaskQueueReader] = {}
        """By queue."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.renewal: asyncio.Future[Any] | None = None
        """The latest renewal of receipts; None before the first one."""
        self._callbacks: dict[str, tuple[Callable[[Any], object], bool]] = {}
        """Of each consumed queue, and whether its messages are acknowledged unseen."""
        self._is_getting = False

    @property
    def clients(self) -> ClusterClients:
        """The clients of the connection."""
        clients: ClusterClients = self.connection.clients
        return clients

    # -- declared ----------------------------------------------------------------------------

    def prepare_queue_arguments(self, arguments: Mapping[str, Any], **named: Any) -> Any:
        """Arguments of a queue, with `max_priority` among them."""
        return to_rabbitmq_queue_arguments(arguments, **named)

    def _new_queue(self, queue: str, **named: Any) -> None:
        clients = self.clients
        if named.get("exclusive") or named.get("auto_delete"):
            if queue not in clients.temporary:
                clients.run(clients.follow(queue))
            return
        highest, kind = (named.get("arguments") or {}).get("x-max-priority"), None
        if highest is not None:
            self.connection.levels[queue] = min(int(highest) + 1, PRIORITIES_MAX)
            kind = "+message.type=PRIORITY"
        if not clients.has_topic(topic := queue_topic(queue)):
            clients.run(clients.create_topic(topic, self.connection.levels.get(queue), kind))

    def _has_queue(self, queue: str, **_: Any) -> bool:
        clients = self.clients
        return queue in clients.temporary or clients.has_topic(queue_topic(queue))

    def _queue_bind(self, exchange: str, routing_key: str, _pattern: object, queue: str) -> None:
        clients = self.clients
        if queue in clients.temporary:
            clients.run(clients.follow(queue, exchange))
        elif not (exchange == routing_key == queue and self._is_direct(exchange)):
            clients.run(self._bind(queue, exchange))

    async def _bind(self, queue: str, exchange: str) -> None:
        await self.clients.bind(queue, exchange)
        for channel in list(self.connection.channels):
            if (reader := channel.readers.get(queue)) is not None:
                await self._read_exchanges(queue, reader)

    async def _read_exchanges(self, queue: str, reader: TaskQueueReader) -> None:
        """Let a queue's reader read the exchanges that the queue is bound to."""
        for exchange in {binding.exchange for binding in self.state.queue_bindings(queue)}:
            topic = exchange_topic(exchange)
            if topic not in reader.subscriptions and await self.clients.look_up(topic):
                reader.subscribe(topic)

    def _is_direct(self, exchange: str) -> bool:
        return bool(self.typeof(exchange).type == "direct")

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any
    ) -> None:
        """Delete a queue."""
        if not (if_empty and self._size(queue)):
            self.clients.run(self.clients.delete(queue, if_unused=if_unused))
            self.state.queue_bindings_delete(queue)

    def exchange_delete(self, exchange: str, **_: Any) -> None:
        """Forget an exchange; its topic stays, for the queues of other processes."""
        self.state.exchanges.pop(exchange, None)

    def _size(self, queue: str) -> int:
        return self.clients.run(self.clients.size(queue))

    def _purge(self, queue: str) -> int:
        number = 0
        with suppress(Empty):
            while True:
                self.settle(tag_of(self._get(queue)), settle)
                number += 1
        return number

    # -- sent --------------------------------------------------------------------------------

    def basic_publish(
        self, message: envelope.Payload, exchange: str, routing_key: str, **_: Any
    ) -> None:
        """Send a message to a queue, or to an exchange for the queues that are bound to it.

        An exchange that no queue was ever bound to drops it, as in AMQP.
        """
        properties = message["properties"]
        properties["body_encoding"] = None  # a message of another transport may have one
        properties["delivery_info"].update(exchange=exchange, routing_key=routing_key)
        clients, topic = self.clients, queue_topic(routing_key)
        may_be_queue = not exchange or (exchange == routing_key and self._is_direct(exchange))
        if may_be_queue and clients.has_topic(topic):
            self._put(routing_key, message)
        elif clients.has_topic(other := exchange_topic(exchange)):
            self._send(other, message, topic or None)

    def _put(self, queue: str, message: envelope.Payload, **_: Any) -> None:
        levels, priority = self.connection.levels.get(queue), message["properties"].get("priority")
        level = None if levels is None else priority_queue(int(priority or 0), levels)
        self._send(queue_topic(queue), message, None, level)

    def _send(
        self, topic: str, payload: envelope.Payload, tag: str | None, level: int | None = None
    ) -> None:
        now, due = CLOCK.now_ms(), envelope.due_ms(payload["headers"])
        at = min(due, now + int(self.delay_max * 1_000))
        task = str(payload["properties"].get("correlation_id") or "")
        message = Message(
            topic,
            envelope.encode(payload),
            tag=tag,
            keys=(task,) if task and task.isprintable() and " " not in task else (),
            deliver_at=datetime.fromtimestamp(at / 1_000, UTC) if due > now else None,
        )
        selector = None if level is None else partial(queue_of_level, level)
        self.clients.run(self.clients.send(message, selector, notes=self.recall))

    # -- received ----------------------------------------------------------------------------

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[[Any], object],
        consumer_tag: str,
        **_: Any,
    ) -> None:
        """Consume a queue."""
        super().basic_consume(queue, no_ack, callback, consumer_tag)
        self._callbacks[queue] = callback, no_ack
        self.clients.run(self._start(queue))

    def basic_qos(self, *positional: Any, **named: Any) -> None:
        """Change the number of unacknowledged messages that there is room for."""
        super().basic_qos(*positional, **named)
        self.clients.thread.loop.call_soon_threadsafe(self._resume)

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop a consumer; messages that it has not seen go to others."""
        queue = self._tag_to_queue.get(consumer_tag, "")
        super().basic_cancel(consumer_tag)
        if self._pid == os.getpid() and queue not in self._active_queues:
            self._callbacks.pop(queue, None)
            self.clients.thread.loop.call_soon_threadsafe(self._stop, queue)

    async def _start(self, queue: str) -> None:
        if (temporary := self.clients.temporary.get(queue)) is not None:
            if queue not in self._tasks:
                reading = self._read(queue, temporary)
                self._tasks[queue] = asyncio.get_running_loop().create_task(reading)
            return
        if "" not in self._tasks:
            self._tasks[""] = asyncio.get_running_loop().create_task(self._tend())
        if (reader := self.readers.get(queue)) is None:
            reader = TaskQueueReader(queue, self)
            await self._read_exchanges(queue, reader)
            await reader.start()
            self.readers[queue] = reader
        reader.resume()

    def _stop(self, queue: str) -> None:
        if (task := self._tasks.pop(queue, None)) is not None:
            task.cancel()
        if (reader := self.readers.get(queue)) is not None:
            reader.pause()
            self._hand_back(queue)

    async def _read(self, queue: str, reader: Any) -> None:
        async for message in reader:
            self.arrived(queue, [message])

    def room(self) -> int:
        """Number of messages to take now; called on the loop's thread."""
        most = min(self.qos.prefetch_count or HELD_MAX, HELD_MAX)
        return 1 if self._is_getting else most - len(self._held)

    def arrived(self, queue: str, messages: Iterable[InboundMessage]) -> None:
        """Keep messages for the consumer's thread; called on the loop's thread."""
        for message in messages:
            try:
                payload = envelope.decode(message.body)
            except CodecMissing:  # another worker may have the package, or this one later
                log_unreadable(message.unreadable)
                retry_later(message)
                continue
            except (ValueError, TypeError, RoquetError) as error:
                log.warning("a message of queue %s is a dead letter: %s", queue, error)
                give_up(message)
                continue
            properties = payload["properties"]
            info = properties["delivery_info"]
            if not self._is_for(queue, message, info):
                settle(message)
                continue
            tag = properties["delivery_tag"] = next(self._delivery_tags)
            info["redelivered"] = message.tries > 0
            self._held[tag] = message
            self._inbox.append((queue, payload))
        self.connection.ring()

    def _is_for(self, queue: str, message: InboundMessage, info: Mapping[str, str]) -> bool:
        """Whether a message was sent to the queue, or to an exchange with a binding for it."""
        exchange, key = info["exchange"], info["routing_key"]
        if message.topic == queue_topic(queue) or queue in self._lookup(exchange, key):
            return True
        log.debug("queue %s has no binding here for key %s of exchange %s", queue, key, exchange)
        return False

    def deliver(self) -> bool:
        """Hand what has arrived to the consumers as far as there is room; whether there was any."""
        seen = len(self._inbox)
        while self._inbox and self.qos.can_consume():
            try:
                queue, payload = self._inbox.popleft()
            except IndexError:  # it went back to others
                break
            self._hand_on(queue, payload)
        return len(self._inbox) < seen

    def _hand_on(self, queue: str, payload: envelope.Payload) -> None:
        tag = tag_of(payload)
        if queue not in self._callbacks:
            self.settle(tag, release)
        elif envelope.due_ms(payload["headers"]) > CLOCK.now_ms() + FAR_MS:
            self._put(queue, payload)
            self.settle(tag, settle)
        else:
            callback, no_ack = self._callbacks[queue]
            message = self.message_to_python(payload)
            if no_ack:
                self.settle(tag, settle)
            else:
                self.qos.append(message, tag)
            try:
                callback(message)
            except Exception:  # which may end the worker, but not one after the other for ever
                self.qos.reject(tag, requeue=True)
                raise

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:
        """Return a message, or None when there is none within a moment."""
        message = super().basic_get(queue, no_ack)
        if no_ack and message is not None:
            self.settle(message.delivery_tag, settle)
        return message

    def _get(self, queue: str) -> envelope.Payload:
        return self.clients.run(self._take_one(queue))

    async def _take_one(self, queue: str) -> envelope.Payload:
        """Return a waiting message of a queue without a consumer; Empty when there is none."""
        if (temporary := self.clients.temporary.get(queue)) is not None:
            if (message := await temporary.next(GET_MS)) is not None:
                self.arrived(queue, [message])
        else:
            self._is_getting = True
            await self._start(queue)
        deadline_ms = CLOCK.monotonic_ms() + GET_MS
        try:
            while True:
                for arrival in list(self._inbox):
                    if arrival[0] == queue:
                        self._inbox.remove(arrival)
                        return arrival[1]
                if CLOCK.monotonic_ms() >= deadline_ms:
                    raise Empty
                await CLOCK.sleep(1)
        finally:
            self._is_getting = False
            if queue in self.readers and queue not in self._active_queues:
                self.readers[queue].pause()

    # -- settled -----------------------------------------------------------------------------

    def requeue(self, message: InboundMessage) -> None:
        """Let a message come again after a pause, which grows."""
        pause_ms = self.requeue_delay * 1_000 * 2 ** min(message.tries, 32)
        retry_later(message, int(min(pause_ms, REQUEUE_MS_MAX)))

    def settle(self, tag: int, how: Callable[[InboundMessage], None]) -> None:
        """Settle a message, from any thread."""
        if self.closed:  # which releases all
            return
        if self._pid != os.getpid():
            log.warning(FORKED, self._pid)
        else:
            self.clients.thread.loop.call_soon_threadsafe(self._settle, tag, how)

    def _settle(self, tag: int, how: Callable[[InboundMessage], None]) -> None:
        if (message := self._held.pop(tag, None)) is not None:
            how(message)
            self._resume()

    def _resume(self) -> None:
        for queue, reader in self.readers.items():
            if queue in self._active_queues:
                reader.resume()
        if self._inbox:
            self.connection.ring()

    # -- held --------------------------------------------------------------------------------

    def _restore(self, message: Any) -> None:
        self.settle(message.delivery_tag, release)

    def _hand_back(self, queue: str | None = None) -> None:
        """Let others have what waits for a consumer here; of one queue, or of all."""
        for arrival in [each for each in list(self._inbox) if queue in (None, each[0])]:
            with suppress(ValueError, IndexError):  # a consumer takes it now
                self._inbox.remove(arrival)
                self._settle(tag_of(arrival[1]), release)

    async def _tend(self) -> None:
        """Keep messages while their tasks run, and hand back those that there is no room for."""
        renewal_ms = max(self.invisible_ms // 4, 1)
        turn_ms = min(SURPLUS_MS, renewal_ms)
        for turn in count(1):
            await CLOCK.sleep(turn_ms)
            if not self.qos.can_consume() or not self._active_queues:
                self._hand_back()
            if turn % (renewal_ms // turn_ms) == 0:
                held = [m for m in self._held.values() if isinstance(m, PoppedMessage)]
                extensions = (message.extend(self.invisible_ms) for message in held)
                self.renewal = asyncio.gather(*extensions, return_exceptions=True)
                await self.renewal

    def close(self) -> None:
        """Hand back all unacknowledged messages, and leave the groups."""
        clients = None if self.closed or self._pid != os.getpid() else self.clients
        super().close()
        if clients is not None:
            clients.run(self._close())

    async def _close(self) -> None:
        if self.renewal is not None:  # acknowledgements wait for its end
            await asyncio.wait([self.renewal])
        for task in self._tasks.values():
            task.cancel()
        for reader in self.readers.values():
            reader.stop()  # what still comes goes back
        for tag in list(self._held):
            self._settle(tag, release)
        for reader in self.readers.values():
            await reader.close()


def tag_of(payload: envelope.Payload) -> int:
    """The delivery tag of a message that has arrived."""
    tag: int = payload["properties"]["delivery_tag"]
    return tag


def queue_of_level(level: int, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Choose the queue of a priority, on any broker."""
    fitting = [queue for queue in queues if queue.queue_id == level] or queues
    return fitting[hash(message.body) % len(fitting)]
