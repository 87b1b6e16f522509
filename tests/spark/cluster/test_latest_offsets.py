"""Looks at brokers: one call each, and those that are away hold up nobody."""

from itertools import pairwise
from typing import Any

import pytest

from roquet.model.errors import CallRefused, ConnectFailed
from roquet.spark.cluster import cluster_client, latest_offsets
from roquet.spark.cluster.latest_offsets import OffsetWatcher
from roquet.spark.options import parse
from roquet.wire.calls.admin.stats import GetTopicStats
from roquet.wire.calls.route import GetRoute
from roquet.wire.codes import ResponseCode

A0, B1 = ("orders", "broker-a", 0), ("orders", "broker-b", 1)


class Now:
    """A clock that goes on only while somebody pauses, or a call takes time."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.ms

    def pause(self, ms: int) -> None:
        self.ms += ms


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    found = Now()
    for module in (latest_offsets, cluster_client):
        monkeypatch.setattr(module, "SYSTEM_CLOCK", found)
    return found


def watching(canned: Any, now: Now, **options: str) -> OffsetWatcher:
    found = OffsetWatcher(parse({"namesrv": canned.namesrv, "topic": "orders", **options}, {}))
    found._cluster.pause = now.pause
    return found


def mood(canned: Any, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """Have brokers answer by what `answer(broker, call)` gives, or as ever when that is None."""
    usual = canned.answer
    monkeypatch.setattr(canned, "answer", lambda b, c: answer(b, c) or usual(b, c))


def test_a_look_tells_both_ends_of_every_queue(canned: Any, now: Now) -> None:
    canned.send("broker-a", 0, b"1", b"2", b"3")
    canned.queues["broker-a", 0].forget(1)
    look = watching(canned, now).observe({})
    assert (look.earliest[A0], look.latest[A0]) == (1, 3)
    assert len(look.latest) == 4
    assert not look.away_ms
    assert not look.unfound


def test_routes_are_asked_for_again_after_a_second(canned: Any, now: Now) -> None:
    found = watching(canned, now)
    found.observe({})
    del canned.calls[:]
    found.observe({})
    assert not [call for call in canned.calls if isinstance(call, GetRoute)]
    now.pause(latest_offsets.CHECK_INTERVAL_MS_MIN)
    found.observe({})
    assert [call for call in canned.calls if isinstance(call, GetRoute)]


def test_a_broker_that_swallows_packets_costs_a_tenth_of_the_time(
    canned: Any, now: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def answer(broker: str, call: Any) -> None:
        if broker == "broker-b":
            asked.append(now.ms)
            now.pause(3_000)
            raise ConnectFailed("no answer within 3000 ms")

    mood(canned, monkeypatch, answer)
    found = watching(canned, now)
    while now.ms < 1_300_000:
        found.observe({})
        now.pause(100)
    apart = [later - sooner for sooner, later in pairwise(asked[2:])]
    assert min(apart) >= 10 * 3_000


def test_what_is_missing_in_one_answer_for_all_is_asked_for_by_queue(
    canned: Any, now: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    canned.send("broker-a", 0, b"1")

    def answer(broker: str, call: Any) -> None:
        if isinstance(call, GetTopicStats):
            raise CallRefused(ResponseCode.NO_PERMISSION, "not for you")

    mood(canned, monkeypatch, answer)
    look = watching(canned, now).observe({})
    assert look.latest[A0] == 1
    assert not look.away_ms


def test_a_busy_broker_is_away_for_a_moment(
    canned: Any, now: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = {"broker-b"}

    def answer(broker: str, call: Any) -> None:
        if broker in busy:
            raise CallRefused(ResponseCode.SYSTEM_BUSY, "later")

    mood(canned, monkeypatch, answer)
    found = watching(canned, now)
    assert list(found.observe({}).away_ms) == ["broker-b"]
    busy.clear()
    now.pause(latest_offsets.CHECK_INTERVAL_MS_MIN)
    assert not found.observe({}).away_ms


def test_queues_that_were_read_are_looked_at_even_without_a_route(canned: Any, now: Now) -> None:
    canned.topic = "other"
    look = watching(canned, now).observe({A0: 3})
    assert list(look.unfound) == ["orders"]
    assert list(look.away_ms) == ["broker-a"]
    assert look.latest == {}


def test_it_waits_for_all_brokers_when_it_is_told_to(
    canned: Any, now: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(broker: str, call: Any) -> None:
        if broker == "broker-b" and now.ms < 1_002_000:
            raise ConnectFailed("it starts")

    mood(canned, monkeypatch, answer)
    look = watching(canned, now).observe_all({})
    assert not look.away_ms
    assert 1_002_000 <= now.ms <= 1_003_500
    assert B1 in look.latest


def test_the_size_of_messages_is_a_mean_of_the_next_ones(canned: Any, now: Now) -> None:
    canned.send("broker-a", 0, b"x" * 100, b"x" * 300)
    size = sum(map(len, canned.queues["broker-a", 0].records)) / 2
    found = watching(canned, now)
    found.observe({})
    assert found.mean_size(A0, 0) == size
    assert found.mean_size(A0, 2) is None, "there is none"
    canned.moods.append(ConnectFailed("away"))
    assert found.mean_size(A0, 0) is None
