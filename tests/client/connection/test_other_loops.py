"""A client belongs to the event loop in which it was started, and says so at once elsewhere."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.conftest import Created

from roquet.client import ConsumerConfig, Message, Producer, TransactionProducer, TransactionState
from roquet.client.connection.stop_signals import StopSignals
from roquet.client.pop import PopConsumer
from roquet.client.pull import PullConsumer
from roquet.client.push import PushConsumer
from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue

QUEUE = MessageQueue("t", "a", 0)
MESSAGE = Message("t", b"x")
NOWHERE = "127.0.0.1:1"


async def handle(message: object) -> None: ...


async def stream(consumer: Any) -> None:
    async for _ in consumer.messages():
        return


def new_clients() -> list[Any]:
    """One client of each kind."""
    config = ConsumerConfig(close_timeout_ms=1)
    return [
        Producer(NOWHERE),
        TransactionProducer(NOWHERE, group="p", check=lambda message: TransactionState.COMMIT),
        PushConsumer(NOWHERE, group="push", topic="t", config=config),
        PullConsumer(NOWHERE, group="pull", config=config),
        PopConsumer(NOWHERE, group="pop", topic="t", config=config),
    ]


Uses = dict[str, Callable[[Any], Any]]

CONSUMER: Uses = {
    "next": lambda c: c.next(100),
    "fetch": lambda c: c.fetch(1, 100),
    "messages": stream,
    "run": lambda c: c.run(handle),
    "run_batch": lambda c: c.run_batch(handle),
    "lag": lambda c: c.lag(),
    "pause": lambda c: c.pause(),
    "resume": lambda c: c.resume(),
    "close": lambda c: c.close(),
}

USES: dict[type, Uses] = {
    Producer: {
        "send": lambda p: p.send(MESSAGE),
        "send_oneway": lambda p: p.send_oneway(MESSAGE),
        "send_batch": lambda p: p.send_batch([MESSAGE]),
        "send_many": lambda p: p.send_many([MESSAGE]),
        "request": lambda p: p.request(MESSAGE),
        "recall": lambda p: p.recall("t", "handle"),
        "flush": lambda p: p.flush(),
        "close": lambda p: p.close(),
    },
    TransactionProducer: {
        "transaction": lambda p: p.transaction(MESSAGE),
        "send_in_transaction": lambda p: p.send_in_transaction(MESSAGE, local=lambda tx: None),
        "close": lambda p: p.close(),
    },
    PushConsumer: {
        **CONSUMER,
        "rebalance": lambda c: c.rebalance(),
        "seek": lambda c: c.seek(QUEUE, 1),
        "subscribe": lambda c: c.subscribe("u"),
        "unsubscribe": lambda c: c.unsubscribe("u"),
    },
    PullConsumer: {
        **CONSUMER,
        "poll": lambda c: c.poll(1, 100),
        "pull": lambda c: c.pull(QUEUE, 0),
        "queues": lambda c: c.queues("t"),
        "committed": lambda c: c.committed(QUEUE),
        "commit": lambda c: c.commit(QUEUE, 1),
        "min_offset": lambda c: c.min_offset(QUEUE),
        "max_offset": lambda c: c.max_offset(QUEUE),
        "offset_by_time": lambda c: c.offset_by_time(QUEUE, 1),
        "assign": lambda c: c.assign([QUEUE]),
        "subscribe": lambda c: c.subscribe("u"),
        "unsubscribe": lambda c: c.unsubscribe("u"),
    },
    PopConsumer: {
        **CONSUMER,
        "subscribe": lambda c: c.subscribe("u"),
        "unsubscribe": lambda c: c.unsubscribe("u"),
    },
}


def test_every_coroutine_of_every_client_is_tried_here() -> None:
    elsewhere = {"start", "seek_to_begin", "seek_to_end", "seek_to_time"}
    for client, uses in USES.items():
        names = {
            name
            for name, method in inspect.getmembers(client, inspect.iscoroutinefunction)
            if not name.startswith("_")
        }
        inherited = USES[Producer].keys() if issubclass(client, Producer) else set()
        assert names - elsewhere - inherited <= uses.keys()


async def refusals(clients: list[Any]) -> dict[str, str]:
    """What each use of each client raises here."""
    found: dict[str, str] = {}
    for client in clients:
        for name, use in USES[type(client)].items():
            try:
                async with asyncio.timeout(5):
                    result = use(client)
                    if asyncio.iscoroutine(result):
                        await result
            except (Exception, asyncio.CancelledError) as error:
                found[f"{type(client).__name__}.{name}"] = f"{type(error).__name__}: {error}"
            else:
                found[f"{type(client).__name__}.{name}"] = "done"
    return found


def check(found: dict[str, str], what: str) -> None:
    others = {
        name: text
        for name, text in found.items()
        if not text.startswith(f"UsageError: this client belongs to another event loop{what}")
    }
    assert not others
    assert len(found) == sum(map(len, USES.values()))


def test_every_method_refuses_the_loop_of_another_thread() -> None:
    clients = new_clients()
    found: dict[str, str] = {}

    async def start() -> None:
        for client in clients:
            await client.start()
        thread = threading.Thread(target=lambda: found.update(asyncio.run(refusals(clients))))
        thread.start()
        await asyncio.to_thread(thread.join)
        for client in clients:
            await client.close()

    asyncio.run(start())
    check(found, ": make a client in each")


def test_every_method_refuses_a_second_run_after_the_first_ones_end(created: Created) -> None:
    signals = created(StopSignals)
    clients = new_clients()

    async def start() -> None:
        for client in clients:
            await client.start()

    asyncio.run(start())
    check(asyncio.run(refusals(clients)), ", which is closed: make a client in each")
    for watch in signals:  # nobody closes them, and signals of later tests are not for them
        watch.close()


def test_a_loop_may_be_used_again_by_what_belongs_to_it() -> None:
    with asyncio.Runner() as runner:
        producer = Producer(NOWHERE)
        runner.run(producer.start())
        assert runner.run(producer.flush(1))
        runner.run(producer.close())


def test_a_plain_method_outside_of_the_loop_is_refused() -> None:
    async def paused() -> None:
        async with PushConsumer(NOWHERE, group="g", topic="t") as consumer:
            with pytest.raises(UsageError, match="another event loop"):
                await asyncio.to_thread(consumer.pause)

    asyncio.run(paused())
