"""Who is told of queues that come and go."""

from typing import Any

import pytest

from roquet.client.push import PushConsumer
from roquet.client.watchers import Watchers
from roquet.model.queue import MessageQueue

QUEUE = MessageQueue("t", "a", 0)


async def test_watchers_hear_nothing_of_retry_topics(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Any] = []
    watchers = Watchers()
    watchers.lost = [lambda queues: 1 / 0, heard.append]
    await watchers.tell(watchers.lost, [MessageQueue("%RETRY%g", "a", 0)])
    assert heard == []
    await watchers.tell(watchers.lost, [QUEUE, MessageQueue("%RETRY%g", "a", 0)])
    assert heard == [(QUEUE,)]
    assert "a watcher of the assignment failed" in caplog.text


async def test_a_watcher_may_be_an_async_def_and_hears_in_turn() -> None:
    heard: list[str] = []

    async def slow(queues: Any) -> None:
        heard.append("slow")

    watchers = Watchers()
    await watchers.tell([slow, lambda queues: heard.append("quick")], [QUEUE])
    await watchers.tell([slow], [])
    assert heard == ["slow", "quick"]


def test_a_consumer_keeps_its_watchers_apart() -> None:
    consumer = PushConsumer("127.0.0.1:1", group="g", topic="t")
    consumer.on_assigned(print)
    consumer.on_revoked(len)
    consumer.on_lost(repr)
    watchers = consumer._assignment.watchers
    assert (watchers.assigned, watchers.revoked, watchers.lost) == ([print], [len], [repr])
