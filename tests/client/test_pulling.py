"""One pull of one queue."""

from collections.abc import Callable
from typing import Any

import pytest

from roquet.client.config import ConsumerConfig
from roquet.client.pulling import Puller, Taste
from roquet.client.session import Session
from roquet.model.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.model.subscription import HeartbeatData
from roquet.testing.clock import in_virtual_time, this_loop

Fakes = Callable[..., Any]

QUEUE = MessageQueue("t", "a", 0)


def test_a_taste_knows_tags_and_their_hashes() -> None:
    taste = Taste.of("t", " TagA ||TagB", 7)
    assert taste.tags == frozenset({"TagA", "TagB"})
    assert taste.subscription.tags_set == ["TagA", "TagB"]
    assert taste.subscription.code_set == [2598919, 2598920]
    assert taste.subscription.sub_version == 7


def test_everything_is_a_taste_too() -> None:
    taste = Taste.of("t", "*", 7)
    assert (taste.tags, taste.subscription.tags_set) == (None, [])


def test_an_expression_without_tags_is_refused() -> None:
    with pytest.raises(UsageError, match="names no tag"):
        Taste.of("t", " || ", 7)


@in_virtual_time
async def test_a_pull_says_what_it_wants(fakes: Fakes, virtual: Fakes) -> None:
    async with fakes(t={"a": 1}) as cluster:
        config: ConsumerConfig = virtual(ConsumerConfig)
        session = Session(cluster.address, config)
        session.start(lambda: HeartbeatData(client_id="me"))
        await session.routes.refresh("t")
        puller = Puller(session, config, "g", saves_progress=True)
        taste = Taste.of("t", "TagA", 7)
        cluster.brokers["a"].put("t", 0, b"x")
        await puller.pull(QUEUE, 0, taste, count=9)
        await puller.pull(QUEUE, 1, taste, count=9, suspend_ms=700, progress=1)
        plain, held = cluster.brokers["a"].pulls
        assert (plain.sys_flag, plain.commit_offset, plain.max_msg_nums) == (4, 0, 9)
        assert (held.sys_flag, held.commit_offset, held.suspend_timeout_millis) == (7, 1, 700)
        assert (held.subscription, held.expression_type, held.sub_version) == ("TagA", "TAG", 7)
        assert this_loop().clock.monotonic_ms() == 700
        await session.close()
