"""Batch handlers that fail in every way: nothing is lost, and nothing comes again that is done."""

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any

import pytest
from tests.conversation.conftest import config_of, producer_of, puller_of, virtual_cluster

from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    Message,
    PopConsumer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    blocking,
)
from roquet.client.consumer import Consumer
from roquet.testing.cluster import BlockingCluster, Cluster

COUNT = 60
LIMIT_MS = 5_000
BAD = 6
"""Bodies that cannot be decoded."""

Messages = Sequence[ReceivedMessage[int]]
BlockingMessages = Sequence[blocking.ReceivedMessage[int]]


class FaultyHandler:
    """Fails as it is told by chance, and at last works; records what is done."""

    def __init__(self, seed: int, faults: int = 40) -> None:
        self.rng = Random(seed)
        self.faults = faults
        self.done: Counter[int] = Counter()
        self.dead: set[int] = set()
        self.again: list[int] = []
        """Values that came after they were done."""
        self.actions: Sequence[Callable[[Messages], Any]] = (
            self.raises, self.acknowledges_half, self.refuses_some, self.hangs, self.hangs_on,
            self.is_cancelled, self.cancels_itself, self.is_false, self.gives_one_up, self.works,
        )  # fmt: skip

    async def __call__(self, messages: Messages) -> object:
        self.again += [m.value for m in messages if self.done[m.value] or m.value in self.dead]
        if not self.faults:
            await self.works(messages)
            return None
        self.faults -= 1
        return await self.rng.choice(self.actions)(messages)

    async def works(self, messages: Messages) -> None:
        await asyncio.sleep(self.rng.random())
        self.done.update(m.value for m in messages if not m.is_settled)

    async def raises(self, _messages: Messages) -> None:
        await asyncio.sleep(self.rng.random())
        raise ValueError("no")

    async def acknowledges_half(self, messages: Messages) -> None:
        for message in messages[::2]:
            await message.ack()
            self.done[message.value] += 1
        await self.raises(messages)

    async def refuses_some(self, messages: Messages) -> None:
        for message in messages[::3]:
            await message.nack(1_000)
        await self.works(messages)

    async def gives_one_up(self, messages: Messages) -> None:
        await messages[0].dead_letter("no such article")
        self.dead.add(messages[0].value)
        await self.works(messages)

    async def hangs(self, messages: Messages) -> None:
        await messages[0].ack()
        self.done[messages[0].value] += 1
        await asyncio.sleep(LIMIT_MS)

    async def hangs_on(self, _messages: Messages) -> None:
        try:
            await asyncio.sleep(LIMIT_MS)
        except asyncio.CancelledError:
            await asyncio.sleep(1)  # and returns, as if it had worked

    async def is_cancelled(self, _messages: Messages) -> None:
        raise asyncio.CancelledError

    async def cancels_itself(self, _messages: Messages) -> None:
        waiting = asyncio.ensure_future(asyncio.sleep(10))
        asyncio.get_running_loop().call_later(0.1, waiting.cancel)
        await waiting

    async def is_false(self, _messages: Messages) -> bool:
        return False


@contextmanager
def session(_messages: Messages) -> Iterator[None]:
    yield


@asynccontextmanager
async def transaction(_messages: Messages) -> AsyncIterator[None]:
    await asyncio.sleep(0.01)
    yield
    await asyncio.sleep(0.01)


@asynccontextmanager
async def consumer_of(kind: str, running: Cluster) -> AsyncIterator[Consumer[Any]]:
    config = config_of(
        ConsumerConfig, concurrency=3, handler_limit_ms=LIMIT_MS, around=[session, transaction],
        backoff=lambda _attempt, _error: 1.0, retries_max=100, trace=True,
    )  # fmt: skip
    if kind == "pull":
        pull = PullConsumer(running.namesrv_addr, group="g", config=config, decode=int)
        async with pull:
            await pull.subscribe("t")
            yield pull
        return
    make: Any = PushConsumer if kind == "push" else PopConsumer
    async with make(
        running.namesrv_addr, group="g", topic="t", config=config, decode=int
    ) as consumer:
        yield consumer


async def letters(running: Cluster) -> list[bytes]:
    async with puller_of(running, "looker") as looker:
        queues = await looker.queues("%DLQ%g")
        results = [await looker.pull(queue, 0, 100) for queue in queues]
        return [message.body for result in results for message in result.messages]


@pytest.mark.parametrize("kind", ["push", "pop", "pull"])
@pytest.mark.parametrize("seed", range(4))
async def test_no_message_is_lost_and_none_that_is_done_comes_again(kind: str, seed: int) -> None:
    handler = FaultyHandler(seed)
    bodies = [b"%d" % n for n in range(COUNT)] + [b"bad %d" % n for n in range(BAD)]
    handler.rng.shuffle(bodies)
    async with virtual_cluster() as running:
        async with producer_of(running) as producer:
            await producer.send_many(Message("t", body) for body in bodies)
        async with consumer_of(kind, running) as consumer:
            run = asyncio.create_task(consumer.run_batch(handler, size=7, wait_ms=100))
            async with asyncio.timeout(3_600):
                while len(handler.done) + len(handler.dead) < COUNT:
                    await asyncio.sleep(1)
                    assert not run.done()
            await asyncio.sleep(120)
            consumer.stop()
            await run
            assert set(handler.done) | handler.dead == set(range(COUNT))
            assert handler.again == []
        dead = await letters(running)
        given_up = [b"%d" % number for number in handler.dead]
        undecoded = [] if kind == "pull" else [body for body in bodies if b"bad" in body]
        assert sorted(dead) == sorted(given_up + undecoded)


@pytest.mark.parametrize("end", ["close", "cancel"])
@pytest.mark.parametrize("kind", ["push", "pop"])
async def test_what_a_member_leaves_undone_is_handled_by_the_next_one(kind: str, end: str) -> None:
    done: list[int] = []

    async def hangs(messages: Messages) -> None:
        await messages[0].ack()
        done.append(messages[0].value)
        await asyncio.sleep(LIMIT_MS)

    async def works(messages: Messages) -> None:
        done.extend(message.value for message in messages)

    async with virtual_cluster() as running:
        async with producer_of(running) as producer:
            await producer.send_many(Message("t", b"%d" % n) for n in range(COUNT))
        async with consumer_of(kind, running) as first:
            run = asyncio.create_task(first.run_batch(hangs, size=7, wait_ms=100))
            await asyncio.sleep(3)
            assert 0 < len(done) < COUNT
            if end == "cancel":
                run.cancel()
                await asyncio.wait([run])
        async with consumer_of(kind, running) as second:
            run = asyncio.create_task(second.run_batch(works, size=7, wait_ms=100))
            await asyncio.sleep(120)
            second.stop()
            await run
    assert set(done) == set(range(COUNT))
    assert kind == "push" or len(done) == COUNT, "each popped message is acknowledged by itself"


class FaultyThreads:
    """Fails in threads as it is told by chance, and at last works; records what is done."""

    def __init__(self, faults: int = 16) -> None:
        self.rng = Random(5)
        self.faults = faults
        self.lock = threading.Lock()
        self.done: Counter[int] = Counter()
        self.dead: set[int] = set()
        self.again: list[int] = []
        self.actions: Sequence[Callable[[BlockingMessages], Any]] = (
            self.works, self.raises, self.acknowledges_half, self.refuses_some, self.gives_one_up,
            self.hangs, lambda _messages: False, lambda _messages: sys.exit(1),
        )  # fmt: skip

    def __call__(self, messages: BlockingMessages) -> object:
        with self.lock:
            self.again += [m.value for m in messages if self.done[m.value] or m.value in self.dead]
            self.faults -= 1
            action = self.rng.choice(self.actions) if self.faults >= 0 else self.works
        return action(messages)

    def works(self, messages: BlockingMessages) -> None:
        with self.lock:
            self.done.update(m.value for m in messages if not m.is_settled)

    def raises(self, _messages: BlockingMessages) -> None:
        raise ValueError("no")

    def acknowledges_half(self, messages: BlockingMessages) -> None:
        for message in messages[::2]:
            message.ack()
        with self.lock:
            self.done.update(m.value for m in messages[::2])
        self.raises(messages)

    def refuses_some(self, messages: BlockingMessages) -> None:
        for message in messages[::3]:
            message.nack(50)
        self.works(messages)

    def gives_one_up(self, messages: BlockingMessages) -> None:
        messages[0].dead_letter("no such article")
        with self.lock:
            self.dead.add(messages[0].value)
        self.works(messages)

    def hangs(self, messages: BlockingMessages) -> None:
        messages[0].ack()
        with self.lock:
            self.done[messages[0].value] += 1
        time.sleep(0.8)
        messages[-1].ack()  # too late: it has failed already


@pytest.mark.parametrize("kind", ["pop", "pull"])
def test_threads_lose_nothing_and_nothing_that_is_done_comes_again(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.client.reading.handler_pool.TIMEOUT_DELAY_MS", 100)
    handler = FaultyThreads()
    with BlockingCluster() as running:
        with blocking.Producer(running.namesrv_addr) as producer:
            producer.send_many(Message("t", b"%d" % n) for n in range(COUNT))
        config = ConsumerConfig(
            consume_from=ConsumeFrom.FIRST, concurrency=3, handler_limit_ms=300, around=[session],
            backoff=lambda _attempt, _error: 0.05, retries_max=100,
        )  # fmt: skip
        make: Any = blocking.PopConsumer if kind == "pop" else blocking.PullConsumer
        with make(running.namesrv_addr, group="g", config=config, decode=int) as consumer:
            consumer.subscribe("t")
            run = threading.Thread(
                target=consumer.run_batch, args=(handler,), kwargs={"size": 7, "wait_ms": 50}
            )
            run.start()
            for _ in range(1_000):
                time.sleep(0.05)
                if len(handler.done) + len(handler.dead) >= COUNT:
                    break
            time.sleep(1)
            consumer.stop()
            run.join(20)
        assert set(handler.done) | handler.dead == set(range(COUNT))
        assert handler.again == []
