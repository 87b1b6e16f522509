import asyncio
import gc
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from taskiq import (
    BrokerMessage,
    Context,
    SimpleRetryMiddleware,
    SmartRetryMiddleware,
    TaskiqDepends,
    TaskiqEvents,
    TaskiqMessage,
    TaskiqMiddleware,
    TaskiqResult,
    TaskiqState,
)
from taskiq.depends.progress_tracker import ProgressTracker, TaskState
from taskiq.exceptions import ResultGetError, SendTaskError
from taskiq.receiver import Receiver

from roquet.admin import groups
from roquet.admin.client import AdminClient
from roquet.client import (
    Compression,
    ConnectFailed,
    ConsumeFrom,
    ConsumerConfig,
    Producer,
    ProducerConfig,
    UsageError,
)
from roquet.integrations.taskiq import RocketMQBroker, RocketMQResultBackend, message_of
from roquet.model.errors import MessageIllegal, NotFound
from roquet.rules.consumption.priority import PRIORITY_MAX
from roquet.testing.cluster import Cluster, cluster

pytestmark = [
    pytest.mark.virtual_time,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:taskiq.*"),
]

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST, invisible_ms=6_000)


def broker_of(running: Cluster, **fields: Any) -> RocketMQBroker:
    fields = {"consumer": FIRST, **fields}
    broker = RocketMQBroker(running.namesrv_addr, **fields)
    return broker.with_result_backend(RocketMQResultBackend(running.namesrv_addr))


@asynccontextmanager
async def working(broker: RocketMQBroker, **settings: Any) -> AsyncIterator[Receiver]:
    """A worker of a broker, as `taskiq worker` runs it: it ends its tasks at the end."""
    broker.is_worker_process = True
    await broker.startup()
    receiver = Receiver(broker, run_startup=False, **{"max_async_tasks": 10, **settings})
    finish = asyncio.Event()
    running = asyncio.create_task(receiver.listen(finish))
    try:
        yield receiver
    finally:
        finish.set()
        await running
        await broker.shutdown()


async def until(holds: Callable[[], object], within_s: float = 120) -> None:
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - of virtual time
            await asyncio.sleep(0.05)


def task_of(name: str = "shop:add", task_id: str = "1", **labels: Any) -> BrokerMessage:
    return BrokerMessage(task_id=task_id, task_name=name, message=b"{}", labels=labels)


async def test_a_task_runs_at_a_worker_and_its_result_comes_back() -> None:
    async with cluster() as running:
        broker = broker_of(running)

        @broker.task
        async def add(a: int, b: int) -> int:
            return a + b

        async with working(broker):
            task = await add.kiq(1, 2)
            result = await task.wait_result(timeout=60)
        assert (result.return_value, result.is_err, result.error) == (3, False, None)


async def test_a_plain_function_runs_in_a_thread() -> None:
    async with cluster() as running:
        broker = broker_of(running)

        @broker.task("shop:double")
        def double(number: int) -> int:
            return 2 * number

        async with working(broker):
            assert (await (await double.kiq(4)).wait_result(timeout=60)).return_value == 8


async def test_a_failed_task_brings_its_exception() -> None:
    async with cluster() as running:
        broker = broker_of(running)

        @broker.task
        async def fail() -> None:
            raise ValueError("no such bill")

        async with working(broker):
            result = await (await fail.kiq()).wait_result(timeout=60)
        assert result.is_err
        assert isinstance(result.error, ValueError)
        assert result.error.args == ("no such bill",)


async def test_another_process_finds_a_result_by_the_id_of_the_task() -> None:
    async with cluster(brokers=2) as running:
        broker = broker_of(running)

        @broker.task
        async def name() -> str:
            return "ada"

        async with working(broker):
            task = await name.kiq()
            await task.wait_result(timeout=60)
        other: RocketMQResultBackend[str] = RocketMQResultBackend(running.namesrv_addr)
        await other.startup()
        assert (await other.get_result(task.task_id)).return_value == "ada"
        assert not await other.is_result_ready("nobody's")
        with pytest.raises(NotFound, match="has no result"):
            await other.get_result("nobody's")
        await other.shutdown()
        await other.shutdown()


async def test_the_last_of_two_results_counts() -> None:
    async with cluster() as running:
        backend: RocketMQResultBackend[int] = RocketMQResultBackend(running.namesrv_addr)
        await backend.startup()
        for number in (1, 2):
            result = TaskiqResult(is_err=False, return_value=number, execution_time=0)
            await backend.set_result("t", result)
            await asyncio.sleep(1)
        assert (await backend.get_result("t")).return_value == 2
        await backend.shutdown()


async def test_a_result_waits_in_its_namespace() -> None:
    async with cluster() as running:
        config = ProducerConfig(namespace="prod")
        backend: RocketMQResultBackend[int] = RocketMQResultBackend(
            running.namesrv_addr, topic="answers", producer=config
        )
        await backend.startup()
        assert not await backend.is_result_ready("t"), "there is no topic yet"
        await backend.set_result("t", TaskiqResult(is_err=False, return_value=1, execution_time=0))
        assert (await backend.get_result("t")).return_value == 1
        await backend.shutdown()
        async with AdminClient(running.namesrv_addr) as admin:
            assert "prod%answers" in await admin.topics()


async def test_a_task_whose_result_cannot_be_stored_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as running:
        broker, runs = broker_of(running), list[int]()
        backend = broker.result_backend
        assert isinstance(backend, RocketMQResultBackend)
        send = Producer.send

        async def fail_once(self: Producer, *message: Any, **fields: Any) -> Any:
            if runs == [1] and message[0] == "taskiq-results":
                raise ConnectFailed("no broker")
            return await send(self, *message, **fields)

        monkeypatch.setattr(Producer, "send", fail_once)

        @broker.task
        async def count() -> int:
            runs.append(1)
            return len(runs)

        async with working(broker):
            task = await count.kiq()
            assert (await task.wait_result(timeout=60)).return_value == 2
            await asyncio.sleep(60)
        assert runs == [1, 1]


async def test_a_task_tells_its_progress() -> None:
    async with cluster() as running:
        broker = broker_of(running)
        go_on = asyncio.Event()

        @broker.task
        async def long(tracker: Annotated[ProgressTracker[int], TaskiqDepends()]) -> None:
            await tracker.set_progress(TaskState.STARTED, 40)
            await go_on.wait()

        async with working(broker):
            task = await long.kiq()  # type: ignore[call-overload]
            assert await task.get_progress() is None
            await asyncio.sleep(2)
            progress = await task.get_progress()
            go_on.set()
        assert progress is not None
        assert (progress.state, progress.meta) == (TaskState.STARTED, 40)


async def test_a_delayed_task_waits_at_the_broker() -> None:
    async with cluster() as running:
        broker, ran = broker_of(running), list[float]()
        now = asyncio.get_running_loop().time

        @broker.task
        async def remind() -> None:
            ran.append(now())

        async with working(broker):
            sent = now()
            await remind.kicker().with_labels(delay=90).kiq()
            await until(lambda: ran)
        assert 90 <= ran[0] - sent < 92


async def test_a_task_outlasts_its_invisible_time() -> None:
    async with cluster() as running:
        broker, runs = broker_of(running), list[int]()

        @broker.task
        async def slow() -> None:
            runs.append(1)
            await asyncio.sleep(100)

        async with working(broker), working(broker_of(running)):
            await slow.kiq()
            await asyncio.sleep(150)
        assert runs == [1]


async def test_tasks_that_wait_for_a_busy_worker_are_no_failures() -> None:
    async with cluster() as running:
        broker, runs = broker_of(running), list[int]()

        @broker.task
        async def slow(number: int) -> None:
            runs.append(number)
            await asyncio.sleep(100)

        async with working(broker, max_async_tasks=1):
            for number in range(4):
                await slow.kiq(number)
            await until(lambda: len(runs) == 4, 600)
            await asyncio.sleep(100)
        assert sorted(runs) == [0, 1, 2, 3], "none came twice"
        async with AdminClient(running.namesrv_addr) as admin:
            assert (await groups.show(admin, "taskiq")).dead_letters == 0


async def test_another_worker_runs_the_task_of_one_that_died() -> None:
    async with cluster() as running:
        dead, living, ran = broker_of(running), broker_of(running), list[str]()
        for broker in (dead, living):
            broker.task("shop:bill")(bill_of(ran, "dead" if broker is dead else "living"))
        dead.is_worker_process = True
        await dead.startup()
        taken = dead.listen()
        await dead.find_task("shop:bill").kiq()  # type: ignore[union-attr]
        await anext(taken)
        await taken.aclose()  # nobody renews it any more, as nobody does for a killed process
        async with working(living):
            await until(lambda: ran, 60)
        assert ran == ["living"]
        await dead.shutdown()


def bill_of(ran: list[str], worker: str) -> Callable[[], Any]:
    async def bill() -> None:
        ran.append(worker)

    return bill


async def test_a_closed_worker_gives_its_tasks_to_others_at_once() -> None:
    async with cluster() as running:
        slow = ConsumerConfig(consume_from=ConsumeFrom.FIRST, invisible_ms=600_000)
        first, second = broker_of(running, consumer=slow), broker_of(running)
        await first.startup()
        for number in range(3):
            await first.kick(task_of(task_id=f"t{number}"))
        taken = first.listen()
        held = [await anext(taken) for _ in range(2)]
        await held[0].ack()  # type: ignore[misc]
        await taken.aclose()
        await first.shutdown()
        await held[1].ack()  # type: ignore[misc]  # too late
        others = second.listen()
        async with asyncio.timeout(30):
            for _ in range(2):
                await (await anext(others)).ack()  # type: ignore[misc]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await anext(others)
        await second.shutdown()


async def test_a_task_whose_middleware_failed_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "asyncio")  # pytest would keep the exception

    class Failing(TaskiqMiddleware):
        seen = 0

        def post_execute(self, message: TaskiqMessage, result: TaskiqResult[Any]) -> None:
            self.seen += 1
            if self.seen == 1:
                raise RuntimeError("a bug of the middleware")

    async with cluster() as running:
        failing = Failing()
        broker, ran = broker_of(running).with_middlewares(failing), list[str]()
        task = broker.task("shop:bill")(bill_of(ran, "again"))
        async with working(broker):
            await task.kiq()
            await until(lambda: failing.seen == 1)
            await task.kiq()
            await until(lambda: failing.seen == 2)
            gc.collect()  # of the exception that names the task
            await until(lambda: failing.seen == 3, 60)
        assert ran == ["again"] * 3


async def test_tasks_outlast_a_broker_that_goes_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "roquet")
    async with cluster(store=tmp_path) as running:
        broker, ran = broker_of(running), list[int]()
        go_on = asyncio.Event()

        @broker.task
        async def bill(number: int) -> None:
            await go_on.wait()
            ran.append(number)

        async with working(broker, max_async_tasks=2):
            for number in range(10):
                await bill.kiq(number)
            await asyncio.sleep(2)
            await running.stop_broker(0)
            with pytest.raises(SendTaskError):
                await bill.kiq(10)
            go_on.set()
            await asyncio.sleep(20)
            await running.start_broker(0)
            await until(lambda: {*ran} == {*range(10)}, 600)


async def test_an_unreadable_task_is_skipped_and_an_unknown_one_as_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster() as running:
        broker, ran = broker_of(running), list[str]()
        task = broker.task("shop:bill")(bill_of(ran, "w"))
        async with Producer(running.namesrv_addr) as producer:
            await producer.send("taskiq", b"\xff no JSON")
            await producer.send(
                "taskiq", b'{"task_id":"1","task_name":"x","labels":{},"args":[],"kwargs":{}}'
            )
        with caplog.at_level(logging.CRITICAL, "roquet"):
            async with working(broker):
                await task.kiq()
                await until(lambda: ran)
                await asyncio.sleep(30)
        assert ran == ["w"]


async def test_a_task_waits_for_the_package_that_its_body_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    squeezed = ProducerConfig(compression=Compression.ZSTD, compress_from=1)
    async with cluster() as running:
        broker, ran = broker_of(running, producer=squeezed), list[str]()
        task = broker.task("shop:bill")(bill_of(ran, "w"))
        await broker.startup()
        await task.kiq()
        await broker.shutdown()
        monkeypatch.setitem(sys.modules, "zstandard", None)
        worker = broker_of(running)
        worker.task("shop:bill")(bill_of(ran, "w"))
        async with working(worker):
            await asyncio.sleep(100)
            assert ran == []
            monkeypatch.undo()
            await until(lambda: ran == ["w"])


@pytest.mark.parametrize("middleware", [SimpleRetryMiddleware(3), SmartRetryMiddleware(3)])
async def test_failed_tasks_are_tried_again_by_taskiqs_own_middlewares(
    middleware: TaskiqMiddleware,
) -> None:
    async with cluster() as running:
        broker, tries = broker_of(running).with_middlewares(middleware), list[int]()

        @broker.task(retry_on_error=True)
        async def flaky() -> str:
            tries.append(1)
            if len(tries) < 3:
                raise OSError("not yet")
            return "done"

        async with working(broker):
            result = await (await flaky.kiq()).wait_result(timeout=100)
        assert (result.return_value, len(tries)) == ("done", 3)


async def test_a_task_may_acknowledge_itself() -> None:
    async with cluster() as running:
        broker, ran = broker_of(running), list[int]()

        @broker.task(ack_type="manual")
        async def careful(context: Annotated[Context, TaskiqDepends()]) -> None:
            ran.append(1)
            await context.ack()

        async with working(broker):
            await careful.kiq()  # type: ignore[call-overload]  # the context comes at the worker
            await asyncio.sleep(60)
        assert ran == [1]


async def test_a_label_chooses_one_of_several_topics() -> None:
    async with cluster() as running:
        broker, ran = broker_of(running, topic=["tasks", "urgent"], group="shop"), list[str]()
        task = broker.task("shop:bill")(bill_of(ran, "w"))
        async with working(broker):
            await task.kiq()
            await task.kicker().with_labels(topic="urgent").kiq()
            await until(lambda: len(ran) == 2)
        async with AdminClient(running.namesrv_addr) as admin:
            assert {"tasks", "urgent"} <= {*await admin.topics()}
            assert {q.topic for q in (await groups.show(admin, "shop")).queues} == {
                "tasks",
                "urgent",
            }


def noting(seen: list[str], name: str) -> Callable[[TaskiqState], None]:
    return lambda _state: seen.append(name)


async def test_events_are_called_where_a_broker_starts_and_ends() -> None:
    async with cluster() as running:
        broker, seen = broker_of(running), list[str]()
        for event in TaskiqEvents:
            broker.add_event_handler(event, noting(seen, event.value))
        await broker.startup()
        await broker.startup()
        await broker.shutdown()
        async with working(broker):
            await asyncio.sleep(1)
    assert seen == ["CLIENT_STARTUP"] * 2 + ["CLIENT_SHUTDOWN", "WORKER_STARTUP", "WORKER_SHUTDOWN"]


async def test_a_broker_that_is_not_started_says_so() -> None:
    broker = RocketMQBroker("127.0.0.1:1")
    with pytest.raises(UsageError, match=r"await broker.startup\(\)"):
        await broker.kick(task_of())
    backend: RocketMQResultBackend[int] = RocketMQResultBackend("127.0.0.1:1")
    with pytest.raises(UsageError, match=r"await broker.startup\(\)"):
        await backend.is_result_ready("t")
    with pytest.raises(UsageError, match="at least one"):
        RocketMQBroker("127.0.0.1:1", topic=[])


async def test_a_task_that_cannot_be_sent_raises_taskiqs_error() -> None:
    async with cluster() as running:
        broker = broker_of(running)

        @broker.task
        async def add(text: str) -> None: ...

        await broker.startup()
        with pytest.raises(SendTaskError) as raised:
            await add.kiq("x" * 5_000_000)
        assert isinstance(raised.value.__cause__, MessageIllegal)
        with pytest.raises(ResultGetError):
            await (await add.kiq("x")).get_result()
        await broker.shutdown()


def test_labels_become_fields_of_the_message() -> None:
    message = message_of(task_of(priority="7"), "tasks")
    assert (message.topic, message.keys, message.tag) == ("tasks", ("1",), "shop:add")
    assert (message.priority, message.delay) == (7, None)
    delayed = message_of(task_of(delay="1.5", priority=7, topic="slow"), "tasks")
    assert (delayed.topic, delayed.priority) == ("slow", None)
    assert delayed.delay is not None
    assert delayed.delay.total_seconds() == 1.5
    assert message_of(task_of(delay=-1), "tasks").delay is None
    assert message_of(task_of(name="a || b"), "tasks").tag is None, "nobody could filter by it"


@pytest.mark.parametrize("label", ["soon", "nan", [], ""])
@pytest.mark.parametrize("name", ["delay", "priority"])
def test_a_label_that_is_no_number_is_refused(name: str, label: object) -> None:
    task = task_of()
    task.labels[name] = label
    with pytest.raises(UsageError, match=f"label {name}: a number, not"):
        message_of(task, "tasks")


@pytest.mark.parametrize("label", ["inf", 1e300])
def test_a_delay_that_no_broker_takes_is_refused(label: object) -> None:
    with pytest.raises(UsageError, match="more than any broker takes"):
        message_of(task_of(delay=label), "tasks")
    assert message_of(task_of(priority=label), "tasks").priority == PRIORITY_MAX
