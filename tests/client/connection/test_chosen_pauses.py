"""A user's own backoff: how it is called, and what happens when it fails."""

import asyncio
import itertools
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.client.conftest import fake_cluster, producer_of
from tests.conversation.conftest import config_of, handling, send, virtual_cluster

from roquet.client import (
    CallTimeout,
    ConfigError,
    ConsumerConfig,
    PopConsumer,
    ProducerConfig,
    PushConsumer,
    ReceivedMessage,
)
from roquet.client.connection.chosen_pauses import ChosenPauses

Tries = list[tuple[int, float]]


def test_without_a_function_the_default_applies() -> None:
    assert ChosenPauses(None).pause_ms(1, None) is None


def test_the_function_gets_the_attempt_and_the_error() -> None:
    calls: list[Any] = []

    def backoff(attempt: int, error: BaseException | None) -> timedelta:
        calls.append((attempt, error))
        return timedelta(seconds=attempt)

    error = OSError()
    assert ChosenPauses(backoff).pause_ms(2, error) == 2_000
    assert calls == [(2, error)]


def broken(_attempt: int, _error: object) -> float:
    raise KeyError("x")


def cancelled(_attempt: int, _error: object) -> float:
    raise asyncio.CancelledError


class Nameless:
    """A value that cannot even be shown."""

    def __repr__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    "backoff",
    [
        lambda *_: math.nan,
        lambda *_: -1,
        lambda *_: None,
        lambda *_: Nameless(),
        broken,
        cancelled,
    ],
    ids=["nan", "negative", "none", "nameless", "raises", "cancelled"],
)
def test_a_failure_is_said_once_and_the_default_applies(
    backoff: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    pauses = ChosenPauses(backoff)
    assert [pauses.pause_ms(1, None), pauses.pause_ms(2, None)] == [None, None]
    assert caplog.text.count("the default pause applies") == 1


def test_only_a_function_is_a_backoff() -> None:
    for kind in (ConsumerConfig, ProducerConfig):
        wrong: Any = 5
        with pytest.raises(ConfigError, match="backoff: expected a function"):
            kind(backoff=wrong)


def doubling(attempt: int, _error: BaseException | None) -> float:
    return 2.0**attempt


@pytest.mark.parametrize(
    ("kind", "settings", "pauses_s"),
    [
        (PushConsumer, {}, [5, 5, 10]),  # rounded up to delay levels
        (PushConsumer, {"ordered": True}, [2, 4, 8]),
        (PopConsumer, {}, [2, 4, 8]),
    ],
    ids=["push", "ordered", "pop"],
)
@pytest.mark.parametrize("is_batch", [False, True])
async def test_tries_come_after_the_chosen_pauses(
    kind: Any, settings: dict[str, Any], pauses_s: list[float], *, is_batch: bool
) -> None:
    if is_batch and settings:
        pytest.skip("ordered messages come one at a time")
    async with virtual_cluster() as running:
        await send(running, b"m")
        times: list[float] = []
        errors: list[str] = []

        def backoff(attempt: int, error: BaseException | None) -> float:
            errors.append(str(error))
            return doubling(attempt, error)

        async def handle(message: Any) -> None:
            times.append(asyncio.get_running_loop().time())
            if len(times) <= 3:
                raise OSError(f"try {len(times)}")

        config = config_of(ConsumerConfig, backoff=backoff, **settings)
        async with kind(running.namesrv_addr, group="g", topic="t", config=config) as consumer:
            run = consumer.run_batch(handle) if is_batch else consumer.run(handle)
            task = asyncio.create_task(run)
            await asyncio.sleep(60)
            consumer.stop()
            await task
        assert errors == ["try 1", "try 2", "try 3"]
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert pauses == pytest.approx(pauses_s, abs=1.6)


async def test_a_pause_of_nack_comes_before_the_backoff() -> None:
    async with virtual_cluster() as running:
        await send(running, b"m")
        times: list[float] = []

        async def handle(message: ReceivedMessage) -> None:
            times.append(asyncio.get_running_loop().time())
            if len(times) == 1:
                await message.nack(20_000)

        config = config_of(ConsumerConfig, backoff=doubling)
        consumer = PopConsumer(running.namesrv_addr, group="g", topic="t", config=config)
        async with consumer, handling(consumer, handle):
            await asyncio.sleep(40)
        assert times[1] - times[0] == pytest.approx(20, abs=1.5)


async def test_resends_to_the_same_broker_wait_for_the_chosen_pauses() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        cluster.a.faults = [CallTimeout("late"), CallTimeout("late")]
        backoff = lambda attempt, _error: attempt * 0.7  # noqa: E731
        async with producer_of(cluster, backoff=backoff) as producer:
            began_s = asyncio.get_running_loop().time()
            assert (await producer.send("t", b"m")).ok
            took_s = asyncio.get_running_loop().time() - began_s
        assert took_s == pytest.approx(0.7 + 1.4, abs=0.1)
