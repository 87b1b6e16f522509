"""Taskiq: its tasks by RocketMQ, with delays, priorities, acknowledgements and results.

    broker = RocketMQBroker("127.0.0.1:9876").with_result_backend(
        RocketMQResultBackend("127.0.0.1:9876")
    )

    @broker.task
    async def add(a: int, b: int) -> int: ...

A worker takes tasks by pop: each stays invisible to other workers while its own renews it, and
comes again when that worker has died. Tasks may therefore run more than once.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from datetime import timedelta
from math import isnan
from typing import Any, Final, TypeVar
from weakref import WeakSet

from roquet.admin import messages
from roquet.admin.client import AdminClient
from roquet.client import (
    CallError,
    ConsumeFrom,
    ConsumerConfig,
    Message,
    NotFound,
    PopConsumer,
    PoppedMessage,
    Producer,
    ProducerConfig,
    RoquetError,
    UsageError,
)
from roquet.client.connection.background import cancel_and_wait
from roquet.integrations import installed_by
from roquet.integrations.unreadable import readable_body
from roquet.log_records import logger
from roquet.model.namespaces import wrap
from roquet.net.clock import clock_of_loop, every
from roquet.rules.consumption.priority import PRIORITY_MAX
from roquet.rules.tag_filter import is_single_tag

with installed_by("pip install 'roquet[taskiq]'"):
    from taskiq import AckableMessage, AsyncBroker, AsyncResultBackend, BrokerMessage, TaskiqResult
    from taskiq.depends.progress_tracker import TaskProgress

log = logger(__name__)

R = TypeVar("R")

RENEWALS: Final = 3
"""Renewals within one invisible time: two may fail before another worker gets the task."""

BUFFERED_MAX: Final = 100_000
"""More messages than a client buffers."""

RELEASE_MS: Final = 1
"""Pause after which a released task comes to another worker."""

_is_result_lost: Final = ContextVar("is_result_lost", default=False)
"""Whether no broker took the result of this task: then its acknowledgement would lose it."""

_WORKER: Final = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
"""Tasks that were sent before a group's first worker started are not skipped."""


class RocketMQBroker(AsyncBroker):
    """Sends tasks to a topic, and hands them to the workers of a group.

    Workers read all given topics; tasks go to the first one, or to that of their label `topic`.
    Further labels: `delay`, in seconds; `priority`, from 0, the lowest, on topics of type PRIORITY
    and for tasks without a delay.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        topic: str | Sequence[str] = "taskiq",
        group: str = "taskiq",
        producer: ProducerConfig | None = None,
        consumer: ConsumerConfig | None = None,
    ) -> None:
        super().__init__()
        self._namesrv = namesrv
        self._topics = [topic] if isinstance(topic, str) else list(topic)
        if not self._topics:
            raise UsageError("topic: at least one is needed, tasks go to the first one")
        self._group = group
        self._producer_config = producer
        self._consumer_config = _WORKER if consumer is None else consumer
        # Clients belong to one process and one event loop: they are made at the start, after forks.
        self._producer: Producer | None = None
        self._readers: list[_TaskReader] = []

    async def startup(self) -> None:
        """Connect, and call the handlers of the event; the first `kiq` needs it."""
        if self._producer is None:
            producer = Producer(self._namesrv, config=self._producer_config)
            await producer.start()
            self._producer = producer
        await super().startup()

    async def shutdown(self) -> None:
        """Call the handlers of the event, give tasks that have not ended to others, and close."""
        try:
            await super().shutdown()
        finally:
            async with AsyncExitStack() as stack:  # closes all, whatever fails
                if self._producer is not None:
                    stack.push_async_callback(self._producer.close)
                for reader in self._readers:
                    stack.push_async_callback(reader.close)
                self._producer, self._readers = None, []

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task; it is stored when this returns."""
        if self._producer is None:
            raise UsageError("the broker is not started: await broker.startup()")
        await self._producer.send(message_of(message, self._topics[0]))

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Hand out tasks; each is held for its worker until it is acknowledged."""
        config = self._consumer_config
        consumer = PopConsumer(self._namesrv, group=self._group, topic=self._topics, config=config)
        await consumer.start()
        reader = _TaskReader(consumer, config)
        self._readers.append(reader)
        try:
            while (task := await reader.next()) is not None:
                yield task
                del task  # held by the receiver alone, while it may still be
        finally:
            await reader.stop()


def message_of(task: BrokerMessage, topic: str) -> Message:
    """The message of a task, by its labels; UsageError for labels that cannot be understood."""
    labels = task.labels
    seconds, priority = _number(labels, "delay"), _number(labels, "priority")
    try:
        delay = timedelta(seconds=max(seconds or 0, 0))
    except OverflowError:
        raise UsageError(f"label delay: {seconds} seconds are more than any broker takes") from None
    return Message(
        str(labels.get("topic") or topic),
        task.message,
        tag=task.task_name if is_single_tag(task.task_name) else None,
        keys=task.task_id,
        delay=delay or None,
        priority=None if delay or priority is None else int(min(max(priority, 0), PRIORITY_MAX)),
    )


def _number(labels: Mapping[str, Any], name: str) -> float | None:
    """The number of a label, None where there is no label."""
    if (label := labels.get(name)) is None:
        return None
    with suppress(TypeError, ValueError, OverflowError):
        if not isnan(number := float(label)):
            return number
    raise UsageError(f"label {name}: a number, not {label!r:.80}")


class _HeldTask:
    """A task that other workers do not get while it is renewed."""

    def __init__(self, message: PoppedMessage, body: bytes, due_ms: int) -> None:
        self.body = body
        self.due_ms = due_ms
        """When it is to be renewed, on the monotonic clock."""
        self.is_over = False
        self._message = message

    async def ack(self) -> None:
        """Acknowledge the task, unless its result is lost: then it comes again."""
        if not self.is_over:
            self.is_over = True
            if _is_result_lost.get():
                log.warning("%r comes again: its result could not be stored", self._message)
            else:
                await self._message.ack()

    async def renew(self, invisible_ms: int, due_ms: int) -> None:
        """Keep the task for a further invisible time."""
        try:
            if not self.is_over:
                await self._message.extend(invisible_ms)
                self.due_ms = due_ms
        except RoquetError as error:
            self.is_over |= not self._message.is_held
            log.warning("%r could not be renewed: %s", self._message, error)

    async def release(self) -> None:
        """Give the task to another worker at once, or when its invisible time has passed."""
        if not self.is_over:
            self.is_over = True
            with suppress(RoquetError):
                await self._message.suspend(RELEASE_MS)


class _TaskReader:
    """Reads tasks for one receiver, and renews those that it works on or that wait for it.

    Nobody says that a receiver has dropped a task without an acknowledgement, as one whose
    middleware raised. So it is only held weakly here: a dropped task is not renewed any more, once
    the receiver has begun with another one.
    """

    def __init__(self, consumer: PopConsumer, config: ConsumerConfig) -> None:
        self._consumer = consumer
        self._clock = clock_of_loop(config.clock)
        self._invisible_ms = config.invisible_ms
        self._renew_ms = max(config.invisible_ms // RENEWALS, 1)
        self._held: WeakSet[_HeldTask] = WeakSet()
        self._waiting: deque[_HeldTask] = deque()
        """Tasks taken out of the client's buffer, where nobody renews them."""
        self._draining = asyncio.Lock()
        self._is_asked = self._is_stopped = False
        """Whether the receiver waits for a task, and whether it takes no more."""
        step = every(max(self._renew_ms // RENEWALS, 1), self._renew, self._clock)
        self._renewing = asyncio.create_task(step, name="renewals of tasks")

    async def next(self) -> AckableMessage | None:
        """Wait for the next task; None when the consumer has stopped."""
        while (task := await self._take()) is not None:
            if not task.is_over:
                return AckableMessage(data=task.body, ack=task.ack)
        return None

    async def _take(self) -> _HeldTask | None:
        async with self._draining:
            pass
        if self._waiting:
            return self._waiting.popleft()
        self._consumer.resume()
        self._is_asked = True
        try:
            while (message := await self._consumer.next()) is not None:
                if (task := await self._hold(message, self._renew_ms)) is not None:
                    return task
        finally:
            self._is_asked = False
        return None

    async def _hold(self, message: PoppedMessage, renew_ms: int) -> _HeldTask | None:
        """Hold a message; None for one that cannot be read, which is settled."""
        if (body := await readable_body(message)) is None:
            return None
        task = _HeldTask(message, body, self._clock.monotonic_ms() + renew_ms)
        self._held.add(task)
        return task

    async def _renew(self, _now_ms: int) -> None:
        """Renew what is due, with the tasks that wait in the client's buffer."""
        async with self._draining:
            if not self._is_asked and not self._is_stopped:
                self._consumer.pause()  # until the receiver has room: others take what comes
                for message in await self._consumer.fetch(BUFFERED_MAX, timeout_ms=0):
                    if (task := await self._hold(message, 0)) is not None:
                        self._waiting.append(task)
        now_ms = self._clock.monotonic_ms()
        due = [task for task in self._held if not task.is_over and task.due_ms <= now_ms]
        renewals = (task.renew(self._invisible_ms, now_ms + self._renew_ms) for task in due)
        await asyncio.gather(*renewals)

    async def stop(self) -> None:
        """Take no more tasks; those that the receiver has stay held until `close`."""
        self._is_stopped = True
        self._consumer.stop()
        async with self._draining:
            await asyncio.gather(*(task.release() for task in self._waiting))

    async def close(self) -> None:
        """Give tasks that have not ended to other workers, and leave the group."""
        await self.stop()
        await cancel_and_wait(self._renewing)
        await asyncio.gather(*(task.release() for task in list(self._held)))
        await self._consumer.close()


class RocketMQResultBackend(AsyncResultBackend[R]):
    """Keeps results in a topic, where any process finds them by the id of the task.

    They live as long as other messages of the brokers; when a task has run twice, the last result
    counts. Values have to be such that pydantic writes as JSON.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        topic: str = "taskiq-results",
        producer: ProducerConfig | None = None,
    ) -> None:
        self._namesrv = namesrv
        self._topic = topic
        self._config = ProducerConfig() if producer is None else producer
        self._clients: tuple[Producer, AdminClient] | None = None

    async def startup(self) -> None:
        """Connect."""
        if self._clients is None:
            producer = Producer(self._namesrv, config=self._config)
            await producer.start()
            self._clients = producer, AdminClient(self._namesrv, self._config)

    async def shutdown(self) -> None:
        """Disconnect."""
        if self._clients is not None:
            (producer, admin), self._clients = self._clients, None
            await producer.close()
            await admin.__aexit__(None, None, None)

    @property
    def _open(self) -> tuple[Producer, AdminClient]:
        if self._clients is None:
            raise UsageError("the result backend is not started: await broker.startup()")
        return self._clients

    async def set_result(self, task_id: str, result: TaskiqResult[R]) -> None:
        """Store the result of a task."""
        try:
            await self._store(task_id, result.model_dump_json().encode())
        except CallError:
            _is_result_lost.set(True)  # taskiq logs the error, and acknowledges the task
            raise

    async def is_result_ready(self, task_id: str) -> bool:
        """Whether the task has a result."""
        return await self._find(task_id) is not None

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[R]:  # noqa: ARG002
        """Return the result of a task; NotFound while it has none."""
        if (body := await self._find(task_id)) is None:
            raise NotFound(f"task {task_id!r} has no result in topic {self._topic!r}")
        return TaskiqResult[R].model_validate_json(body)

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        """Store the progress of a task."""
        await self._store(f"progress:{task_id}", progress.model_dump_json().encode())

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        """Return the last progress of a task; None when it has told none."""
        body = await self._find(f"progress:{task_id}")
        return None if body is None else TaskProgress[Any].model_validate_json(body)

    async def _store(self, key: str, body: bytes) -> None:
        await self._open[0].send(self._topic, body, keys=key)

    async def _find(self, key: str) -> bytes | None:
        """The body of the newest message with a key."""
        topic = wrap(self._config.namespace, self._topic)
        try:
            found = await messages.by_key(self._open[1], topic, key, count=1)
        except NotFound:  # the first result makes the topic
            return None
        return found[-1].body if found else None
