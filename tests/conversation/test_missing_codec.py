"""Bodies whose package is not installed: their messages wait, uncounted, until it is there."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from tests.conversation.conftest import config_of, producer_of, virtual_cluster

from roquet.client import (
    Compression,
    ConsumerConfig,
    Message,
    PopConsumer,
    ProducerConfig,
    PushConsumer,
    ReceivedMessage,
)
from roquet.client.reading.handler_result import log_unreadable
from roquet.model.errors import CodecMissing, ConfigError
from roquet.testing.cluster import Cluster

BODY: Final = b"4711" * 4_000
HOURS: Final = 0.5


@pytest.fixture(autouse=True)
def said_again() -> None:
    log_unreadable.cache_clear()


@asynccontextmanager
async def squeezed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """A cluster with a plain message, and one of Zstandard; its package is then missing."""
    async with virtual_cluster() as running:
        async with producer_of(running, compression=Compression.ZSTD) as producer:
            await producer.send(Message("orders", BODY))
            await producer.send(Message("orders", b"plain"))
        monkeypatch.setitem(sys.modules, "zstandard", None)
        yield running


def consumer(running: Cluster, kind: str, **settings: Any) -> PushConsumer | PopConsumer:
    config = config_of(ConsumerConfig, **settings)
    if kind == "pop":
        return PopConsumer(running.namesrv_addr, group="billing", topic="orders", config=config)
    return PushConsumer(running.namesrv_addr, group="billing", topic="orders", config=config)


async def run_for(consumer: PushConsumer | PopConsumer, handler: Any, hours: float) -> None:
    run = asyncio.create_task(consumer.run(handler))
    await asyncio.sleep(hours * 3_600)
    consumer.stop()
    await run


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("push", {}), ("push", {"ordered": True, "retries_max": 2}), ("pop", {})],
    ids=["push", "ordered", "pop"],
)
async def test_a_message_waits_and_no_try_counts(
    kind: str,
    settings: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    read: list[bytes] = []
    asked = 0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal asked
        asked += 1
        read.append(message.body)

    tries: list[int] = []

    async def handle_at_last(message: ReceivedMessage) -> None:
        tries.append(message.reconsume_times)
        read.append(message.body)

    async with squeezed(monkeypatch) as running:
        async with consumer(running, kind, **settings) as lacking:
            await run_for(lacking, handle, HOURS)
        assert read == [b"plain"]
        assert asked > HOURS * 100
        assert "pip install 'roquet[compression]'" in caplog.text
        assert caplog.text.count("is not installed") == 1
        monkeypatch.undo()
        async with consumer(running, kind, **settings) as complete:
            await run_for(complete, handle_at_last, 0.1)
        assert (read, tries) == ([b"plain", BODY], [0])


@pytest.mark.parametrize("kind", ["push", "pop"])
async def test_a_batch_comes_without_those_that_cannot_be_read(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[bytes, int]] = []

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        read.extend((message.body, message.reconsume_times) for message in messages)

    async def handle_for(consumer: PushConsumer | PopConsumer, seconds: float) -> None:
        run = asyncio.create_task(consumer.run_batch(handle, wait_ms=1_000))
        await asyncio.sleep(seconds)
        consumer.stop()
        await run

    async with squeezed(monkeypatch) as running:
        async with consumer(running, kind) as lacking:
            await handle_for(lacking, 1_800)
        assert read == [(b"plain", 0)]
        monkeypatch.undo()
        async with consumer(running, kind) as complete:
            await handle_for(complete, 120)
        assert read == [(b"plain", 0), (BODY, 0)]


async def test_an_exception_of_the_handlers_own_counts_no_try_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def handle(message: ReceivedMessage) -> None:
        try:
            len(message.body)
        except CodecMissing as error:
            raise ValueError("no order") from error
        assert message.tries == 0

    async with squeezed(monkeypatch) as running:
        async with consumer(running, "push") as lacking:
            await run_for(lacking, handle, HOURS)
            assert await lacking.lag() != {}
        assert not [
            name for name in running.brokers[0].broker.tables.topics if "DLQ" in name.topic_name
        ]


def test_a_producer_says_at_once_that_its_codec_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "lz4", None)
    with pytest.raises(ConfigError, match=r"compression: LZ4 .*pip install 'roquet\[compression"):
        ProducerConfig(compression=Compression.LZ4)
