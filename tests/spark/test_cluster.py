"""Brokers are asked patiently, and an answer that will not come is an error that says so."""

import logging
from typing import Any

import pytest

from roquet.model.errors import (
    CallRefused,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    UsageError,
)
from roquet.spark.cluster import Cluster, DataLost
from roquet.spark.options import SourceOptions
from roquet.wire.calls.offset import MaxOffset
from roquet.wire.codes import ResponseCode


def cluster_of(canned: Any, pauses: list[int] | None = None, **settings: Any) -> Cluster:
    options = SourceOptions(namesrv=(canned.namesrv,), topics=(settings.pop("topic", "orders"),))
    options = SourceOptions(
        **{name: getattr(options, name) for name in options.__struct_fields__} | settings
    )
    return Cluster(options, pause=(pauses if pauses is not None else []).append)


def ends(canned: Any) -> dict[tuple[str, str, int], int]:
    return {("orders", *queue): end for queue, end in canned.ends().items()}


def test_offsets_of_all_queues_of_all_brokers(canned: Any) -> None:
    canned.send("broker-b", 1, b"x", b"y")
    canned.queues["broker-b", 1].forget(1)
    cluster = cluster_of(canned)
    assert cluster.latest() == ends(canned)
    assert cluster.earliest()["orders", "broker-b", 1] == 1
    assert dict(cluster.addresses) == canned.addresses


def test_failures_that_may_pass_are_waited_out(canned: Any) -> None:
    canned.moods += [
        ConnectionLost("gone"),
        CallTimeout("slow"),
        CallRefused(ResponseCode.SYSTEM_BUSY, "busy"),
        ConnectFailed("nobody"),
    ]
    pauses: list[int] = []
    assert cluster_of(canned, pauses).latest() == ends(canned)
    assert pauses == sorted(pauses)
    assert len(pauses) >= 2


def test_a_broker_that_came_back_elsewhere_is_found(canned: Any) -> None:
    cluster = cluster_of(canned)
    cluster.latest()
    canned.addresses["broker-a"] = "elsewhere:1"
    call = MaxOffset(topic="orders", queue_id=0)
    assert cluster.ask("broker-a", call).offset == 0
    assert cluster.addresses["broker-a"] == "elsewhere:1"


def test_a_refusal_that_will_not_pass_is_raised_at_once(canned: Any) -> None:
    pauses: list[int] = []
    cluster = cluster_of(canned, pauses)
    cluster.latest()
    canned.moods.append(CallRefused(ResponseCode.NO_PERMISSION, "not readable"))
    with pytest.raises(CallRefused, match="not readable"):
        cluster.ask("broker-a", MaxOffset(topic="orders", queue_id=0))
    assert pauses == []


def test_time_runs_out(canned: Any) -> None:
    cluster = cluster_of(canned, timeout_ms=0)
    canned.moods += [ConnectFailed("nobody there")] * 9
    with pytest.raises(ConnectFailed, match="nobody there"):
        cluster.latest()


def test_a_broker_that_left_the_route_is_named(canned: Any) -> None:
    cluster = cluster_of(canned, timeout_ms=0)
    with pytest.raises(ConnectFailed, match="broker 'broker-z' is not in the route of orders"):
        cluster.ask("broker-z", MaxOffset(topic="orders", queue_id=0))


def test_an_unknown_topic_is_the_users_mistake(canned: Any) -> None:
    with pytest.raises(UsageError, match="topic 'odrers' is unknown"):
        cluster_of(canned, topic="odrers").latest()


def test_a_topic_that_was_there_is_waited_for(canned: Any) -> None:
    cluster = cluster_of(canned)
    cluster.latest()
    canned.moods.append(CallRefused(ResponseCode.TOPIC_NOT_EXIST, "just started"))
    assert cluster.latest() == ends(canned)


def test_the_next_name_server_is_asked(canned: Any) -> None:
    cluster = cluster_of(canned, namesrv=("dead:9876", canned.namesrv))
    assert cluster.latest() == ends(canned)


def test_loss_is_an_error_unless_the_user_has_said_otherwise(
    canned: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataLost, match="five are gone; failOnDataLoss=false"):
        cluster_of(canned).lost("five are gone")
    with caplog.at_level(logging.WARNING):
        cluster_of(canned, fail_on_data_loss=False).lost("five are gone")
    assert "five are gone" in caplog.text
