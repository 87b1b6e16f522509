"""Latest offsets: one call per broker, and absent brokers do not delay the others."""

from itertools import pairwise
from typing import Any

import pytest
from tests.spark.conftest import Answer, CannedCluster, PausedClock

from roquet.model.errors import CallRefused, ConnectFailed
from roquet.spark.cluster import cluster_client, latest_offsets
from roquet.spark.cluster.latest_offsets import OffsetWatcher
from roquet.spark.options import parse
from roquet.wire.call import Call
from roquet.wire.calls.admin.stats import GetTopicStats
from roquet.wire.calls.route import GetRoute
from roquet.wire.codes import ResponseCode

A0, B1 = ("orders", "broker-a", 0), ("orders", "broker-b", 1)


NOW = PausedClock()


@pytest.fixture(autouse=True)
def _set_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    NOW.ms = 1_000_000
    for module in (latest_offsets, cluster_client):
        monkeypatch.setattr(module, "SYSTEM_CLOCK", NOW)


def watcher_of(canned: CannedCluster, **options: str) -> OffsetWatcher:
    settings = parse({"namesrv": canned.namesrv, "topic": "orders", **options}, {})
    return OffsetWatcher(settings, NOW.pause)


def replace_answers(canned: CannedCluster, answer: Answer) -> None:
    """Have brokers reply with `answer(broker, call)`, or as usual where that is None."""
    usual = canned.answer
    canned.answer = lambda broker, call: answer(broker, call) or usual(broker, call)


def test_an_observation_has_both_ends_of_every_queue(canned: CannedCluster) -> None:
    canned.send("broker-a", 0, b"1", b"2", b"3")
    canned.queues["broker-a", 0].forget(1)
    look = watcher_of(canned).observe({})
    assert (look.earliest[A0], look.latest[A0]) == (1, 3)
    assert len(look.latest) == 4
    assert not look.away_ms
    assert not look.unfound


def test_routes_are_asked_for_again_after_a_second(canned: CannedCluster) -> None:
    watcher = watcher_of(canned)
    watcher.observe({})
    del canned.calls[:]
    watcher.observe({})
    assert not [call for call in canned.calls if isinstance(call, GetRoute)]
    NOW.pause(latest_offsets.CHECK_INTERVAL_MS_MIN)
    watcher.observe({})
    assert [call for call in canned.calls if isinstance(call, GetRoute)]


def test_a_broker_that_swallows_packets_costs_a_tenth_of_the_time(canned: CannedCluster) -> None:
    attempts_ms: list[int] = []

    def answer(broker: str, call: Call[Any]) -> None:
        if broker == "broker-b":
            attempts_ms.append(NOW.ms)
            NOW.pause(3_000)
            raise ConnectFailed("no answer within 3000 ms")

    replace_answers(canned, answer)
    watcher = watcher_of(canned)
    while NOW.ms < 1_300_000:
        watcher.observe({})
        NOW.pause(100)
    apart = [later - sooner for sooner, later in pairwise(attempts_ms[2:])]
    assert min(apart) >= 10 * 3_000


def test_queues_of_a_broker_that_refuses_stats_are_asked_for_singly(canned: CannedCluster) -> None:
    canned.send("broker-a", 0, b"1")

    refused = CallRefused(ResponseCode.NO_PERMISSION, "not for you")
    canned.reply_with(GetTopicStats, refused)
    look = watcher_of(canned).observe({})
    assert look.latest[A0] == 1
    assert not look.away_ms


def test_a_busy_broker_is_away_for_a_moment(canned: CannedCluster) -> None:
    busy = {"broker-b"}

    def answer(broker: str, call: Call[Any]) -> None:
        if broker in busy:
            raise CallRefused(ResponseCode.SYSTEM_BUSY, "later")

    replace_answers(canned, answer)
    watcher = watcher_of(canned)
    assert list(watcher.observe({}).away_ms) == ["broker-b"]
    busy.clear()
    NOW.pause(latest_offsets.CHECK_INTERVAL_MS_MIN)
    assert not watcher.observe({}).away_ms


def test_queues_read_before_are_observed_without_a_route(canned: CannedCluster) -> None:
    canned.topic = "other"
    look = watcher_of(canned).observe({A0: 3})
    assert list(look.unfound) == ["orders"]
    assert list(look.away_ms) == ["broker-a"]
    assert look.latest == {}


def test_observe_all_waits_for_all_brokers(canned: CannedCluster) -> None:
    def answer(broker: str, call: Call[Any]) -> None:
        if broker == "broker-b" and NOW.ms < 1_002_000:
            raise ConnectFailed("it starts")

    replace_answers(canned, answer)
    look = watcher_of(canned).observe_all({})
    assert not look.away_ms
    assert 1_002_000 <= NOW.ms <= 1_003_500
    assert B1 in look.latest


def test_the_message_size_is_the_mean_of_the_next_messages(canned: CannedCluster) -> None:
    canned.send("broker-a", 0, b"x" * 100, b"x" * 300)
    size = sum(map(len, canned.queues["broker-a", 0].records)) / 2
    watcher = watcher_of(canned)
    watcher.observe({})
    assert watcher.mean_size(A0, 0) == size
    assert watcher.mean_size(A0, 2) is None, "there is none"
    canned.failures.append(ConnectFailed("away"))
    assert watcher.mean_size(A0, 0) is None
