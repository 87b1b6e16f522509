"""Listeners of assigned, revoked and lost queues."""

from typing import Any

import pytest

from roquet.client.push import PushConsumer
from roquet.client.rebalance.listeners import RebalanceListeners
from roquet.model.queue import MessageQueue

QUEUE = MessageQueue("t", "a", 0)


async def test_watchers_hear_nothing_of_retry_topics(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Any] = []
    listeners = RebalanceListeners()
    listeners.lost = [lambda queues: 1 / 0, heard.append]
    await listeners.notify(listeners.lost, [MessageQueue("%RETRY%g", "a", 0)])
    assert heard == []
    await listeners.notify(listeners.lost, [QUEUE, MessageQueue("%RETRY%g", "a", 0)])
    assert heard == [(QUEUE,)]
    assert "a rebalance listener failed" in caplog.text


async def test_a_watcher_may_be_an_async_def_and_hears_in_turn() -> None:
    heard: list[str] = []

    async def slow(queues: Any) -> None:
        heard.append("slow")

    listeners = RebalanceListeners()
    await listeners.notify([slow, lambda queues: heard.append("quick")], [QUEUE])
    await listeners.notify([slow], [])
    assert heard == ["slow", "quick"]


def test_a_consumer_keeps_its_watchers_apart() -> None:
    consumer = PushConsumer("127.0.0.1:1", group="g", topic="t")
    consumer.on_assigned(print)
    consumer.on_revoked(len)
    consumer.on_lost(repr)
    listeners = consumer._rebalancer.listeners
    assert (listeners.assigned, listeners.revoked, listeners.lost) == ([print], [len], [repr])
