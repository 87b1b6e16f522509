"""Handler times: long calls are timed, and short ones by samples."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from roquet.client.metrics import HANDLE_SECONDS, ClientMetrics
from roquet.client.reading.handler_times import UNTIMED_MAX, timed
from roquet.testing.clock import this_loop

MESSAGE: Any = SimpleNamespace(queue=SimpleNamespace(topic="t"))


class CountingClock:
    """A clock that counts how often it is asked."""

    def __init__(self, step_ms: int = 0) -> None:
        self.asked = 0
        self.step_ms = step_ms

    def monotonic_ms(self) -> int:
        self.asked += 1
        return self.asked * self.step_ms


def counts(metrics: ClientMetrics) -> tuple[float, float]:
    values, labels = metrics.snapshot(), '{group="g",topic="t"}'
    name = HANDLE_SECONDS.name
    return values[f"{name}_count{labels}"], values[f"{name}_sum{labels}"]


async def test_short_calls_are_timed_one_in_64() -> None:
    metrics, clock = ClientMetrics(), CountingClock()
    handled: list[Any] = []

    async def handle(message: Any) -> None:
        handled.append(message)

    handler = timed(handle, metrics, "g", clock)  # type: ignore[arg-type]
    for _ in range(4 * (UNTIMED_MAX + 1)):
        await handler(MESSAGE)
    assert (len(handled), clock.asked) == (256, 8)
    assert counts(metrics) == (4, 0)


async def test_long_calls_are_all_timed_and_errors_pass() -> None:
    metrics = ClientMetrics()

    async def handle(_message: Any) -> None:
        await asyncio.sleep(0.25)
        raise ValueError

    handler = timed(handle, metrics, "g", this_loop().clock)
    for _ in range(3):
        with pytest.raises(ValueError):
            await handler(MESSAGE)
    assert counts(metrics) == pytest.approx((3, 0.75), abs=0.003)


def test_a_plain_function_is_timed_in_its_thread() -> None:
    metrics, clock = ClientMetrics(), CountingClock(5)
    handler = timed(lambda _message: "result", metrics, "g", clock)  # type: ignore[arg-type]
    assert [handler(MESSAGE), handler(MESSAGE)] == ["result", "result"]
    assert counts(metrics) == (2, 0.01)
