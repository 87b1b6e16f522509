"""Cluster client: calls are retried, and errors say what failed."""

import logging
from typing import Any

import pytest
from tests.spark.conftest import CannedCluster, PausedClock

from roquet.model.errors import CallRefused, CallTimeout, ConnectFailed, ConnectionLost, UsageError
from roquet.rules.send_retry import NOT_DONE
from roquet.spark.cluster import cluster_client
from roquet.spark.cluster.cluster_client import ClusterClient, DataLost
from roquet.spark.options import SourceOptions, parse
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.namesrv import GetBrokerMembers, SystemTopics
from roquet.wire.calls.admin.stats import GetTopicStats
from roquet.wire.calls.offset import MaxOffset, MinOffset, OffsetReply, QueryOffset
from roquet.wire.codes import ResponseCode


def cluster_of(
    canned: CannedCluster, pauses: list[int] | None = None, **settings: Any
) -> ClusterClient:
    options = {"namesrv": (canned.namesrv,), "topics": (settings.pop("topic", "orders"),)}
    pause = (pauses if pauses is not None else []).append
    return ClusterClient(SourceOptions(**{**options, **settings}), pause=pause)


def ends(canned: CannedCluster) -> dict[tuple[str, str, int], int]:
    return {("orders", *queue): end for queue, end in canned.ends().items()}


def test_offsets_of_all_queues_of_all_brokers(canned: CannedCluster) -> None:
    canned.send("broker-b", 1, b"x", b"y")
    canned.queues["broker-b", 1].forget(1)
    cluster = cluster_of(canned)
    assert cluster.latest() == ends(canned)
    assert cluster.earliest()["orders", "broker-b", 1] == 1
    assert dict(cluster.addresses) == canned.addresses


def test_one_call_returns_the_offsets_of_all_queues_of_a_broker(canned: CannedCluster) -> None:
    cluster_of(canned).bounds()
    assert sum(isinstance(call, GetTopicStats) for call in canned.calls) == 2
    assert not [call for call in canned.calls if isinstance(call, MinOffset | MaxOffset)]


def test_a_broker_that_refuses_stats_is_asked_queue_by_queue(canned: CannedCluster) -> None:
    canned.send("broker-b", 1, b"x", b"y")
    canned.queues["broker-b", 1].forget(1)
    refused = CallRefused(ResponseCode.NO_PERMISSION, "for administrators")
    canned.reply_with(GetTopicStats, refused)
    cluster = cluster_of(canned)
    bounds = cluster.bounds()
    assert bounds.latest == ends(canned)
    assert bounds.earliest["orders", "broker-b", 1] == 1
    canned.calls.clear()
    cluster.bounds()
    assert not [call for call in canned.calls if isinstance(call, GetTopicStats)], "asked once"


def test_queues_that_the_reply_leaves_out_are_asked_for(
    canned: CannedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    canned.send("broker-a", 1, b"x")
    stats = canned.stats
    monkeypatch.setattr(canned, "stats", lambda _: stats("broker-without-queues"))
    assert cluster_of(canned).latest() == ends(canned)


def test_a_queue_that_was_never_used_is_empty(
    canned: CannedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    canned.queues["broker-a", 0].first = -1
    monkeypatch.setattr(canned, "stats", lambda _: Reply(body=b"{}"))
    assert cluster_of(canned).bounds().earliest["orders", "broker-a", 0] == 0


@pytest.mark.parametrize("code", sorted(NOT_DONE))
def test_a_busy_broker_is_asked_the_same_again(canned: CannedCluster, code: int) -> None:
    cluster = cluster_of(canned)
    cluster.bounds()
    canned.calls.clear()
    whole, failures = canned.answer, [CallRefused(code, "busy")]

    def busy(broker: str, call: Call[Any]) -> Any:
        if isinstance(call, GetTopicStats) and failures:
            raise failures.pop()
        return whole(broker, call)

    canned.answer = busy
    assert cluster.latest() == ends(canned)
    assert sum(isinstance(call, GetTopicStats) for call in canned.calls) == 3


def test_a_topic_that_a_broker_has_forgotten_is_empty_there(canned: CannedCluster) -> None:
    gone = CallRefused(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
    canned.reply_with(GetTopicStats, gone)
    assert cluster_of(canned).latest() == ends(canned)


def test_transient_failures_are_retried(canned: CannedCluster) -> None:
    canned.failures += [
        ConnectionLost("gone"),
        CallTimeout("slow"),
        CallRefused(ResponseCode.SYSTEM_BUSY, "busy"),
        ConnectFailed("nobody"),
    ]
    pauses: list[int] = []
    assert cluster_of(canned, pauses).latest() == ends(canned)
    assert pauses == sorted(pauses)
    assert len(pauses) >= 2


def test_pauses_grow_up_to_a_second(canned: CannedCluster) -> None:
    pauses: list[int] = []
    failures = [CallRefused(ResponseCode.GO_AWAY, "shutting down")] * 8

    def attempt() -> str:
        if failures:
            raise failures.pop()
        return "done"

    assert cluster_of(canned, pauses).with_retries(attempt, "broker-a") == "done"
    assert pauses == [50, 100, 200, 400, 800, 1_000, 1_000, 1_000]


def test_a_broker_that_came_back_elsewhere_is_found(canned: CannedCluster) -> None:
    cluster = cluster_of(canned)
    cluster.latest()
    canned.addresses["broker-a"] = "elsewhere:1"
    call = MaxOffset(topic="orders", queue_id=0)
    assert cluster.ask("broker-a", call).offset == 0
    assert cluster.addresses["broker-a"] == "elsewhere:1"


@pytest.mark.parametrize("code", sorted(NOT_DONE))
def test_another_master_is_looked_up_when_the_former_one_refuses(
    canned: CannedCluster, code: int
) -> None:
    former = dict(canned.addresses)
    cluster = ClusterClient(cluster_of(canned).settings, former, lambda _: None)
    canned.failures.append(CallRefused(code, "this broker is a replica"))
    canned.addresses["broker-a"] = "elsewhere:1"
    assert cluster.ask("broker-a", MaxOffset(topic="orders", queue_id=0)).offset == 0
    assert cluster.addresses["broker-a"] == "elsewhere:1"


def test_a_busy_broker_is_asked_where_it_was_while_no_name_server_answers(
    canned: CannedCluster,
) -> None:
    cluster = ClusterClient(cluster_of(canned).settings, canned.addresses, lambda _: None)
    canned.failures += [CallRefused(ResponseCode.SYSTEM_BUSY, "busy"), ConnectFailed("no server")]
    assert cluster.ask("broker-a", MaxOffset(topic="orders", queue_id=0)).offset == 0


def test_tasks_and_streams_read_from_the_leader_alone(canned: CannedCluster) -> None:
    canned.broker_ids["broker-b"] = 1
    assert cluster_of(canned).latest() == ends(canned), "a batch may be planned with a copy"
    settings = parse({"namesrv": canned.namesrv, "topic": "orders", "timeout": "1ms"}, {})
    task = ClusterClient(settings, {"broker-a": canned.addresses["broker-a"]}, lambda _: None)
    with pytest.raises(ConnectFailed, match="broker 'broker-b' is not in the route"):
        task.ask("broker-b", MaxOffset(topic="orders", queue_id=0))
    stream = canned.client(timeout_ms=1)
    with pytest.raises(ConnectFailed, match="broker 'broker-b' is not in the route"):
        stream.latest()


def test_a_follower_that_stands_in_is_no_leader(canned: CannedCluster) -> None:
    canned.true_ids["broker-b"] = {1: canned.addresses["broker-b"]}
    assert cluster_of(canned).latest() == ends(canned), "a batch may be planned with a copy"
    stream = canned.client(timeout_ms=1)
    with pytest.raises(ConnectFailed, match="broker 'broker-b' is not in the route"):
        stream.latest()
    assert stream.addresses == {"broker-a": canned.addresses["broker-a"]}


def test_a_former_leader_is_not_asked_while_there_is_none(canned: CannedCluster) -> None:
    stream = canned.client(timeout_ms=1)
    stream.latest()
    canned.broker_ids["broker-b"] = 1
    stream.look_up()
    assert stream.addresses == {"broker-a": canned.addresses["broker-a"]}
    with pytest.raises(ConnectFailed, match="broker 'broker-b' is not in the route"):
        stream.ask("broker-b", MaxOffset(topic="orders", queue_id=0))


def test_a_task_asks_the_copy_that_it_was_planned_with(canned: CannedCluster) -> None:
    canned.broker_ids["broker-b"] = 1
    task = ClusterClient(cluster_of(canned).settings, canned.addresses, lambda _: None)
    task.look_up()
    assert task.ask("broker-b", MaxOffset(topic="orders", queue_id=0)).offset == 0


def test_a_task_that_was_planned_without_any_leader_waits_for_one(canned: CannedCluster) -> None:
    canned.broker_ids |= {"broker-a": 1, "broker-b": 1}
    settings = parse({"namesrv": canned.namesrv, "topic": "orders", "timeout": "1ms"}, {})
    task = ClusterClient(settings, {}, lambda _: None)
    with pytest.raises(ConnectFailed, match="broker 'broker-a' is not in the route"):
        task.ask("broker-a", MaxOffset(topic="orders", queue_id=0))


def test_a_broker_is_away_while_nobody_says_whether_it_leads(
    canned: CannedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    canned.true_ids["broker-b"] = {0: canned.addresses["broker-b"]}
    stream = canned.client()
    usual = canned.route

    def route(call: Any) -> Any:
        if isinstance(call, GetBrokerMembers):
            raise CallRefused(ResponseCode.NO_PERMISSION, "not for you")
        return usual(call)

    canned.route = route  # type: ignore[method-assign]
    for _ in range(3):
        stream.route("orders")
    assert stream.addresses == {"broker-a": canned.addresses["broker-a"]}
    assert caplog.text.count("allow the user of the read to Get its cluster") == 1


def test_a_topic_that_nobody_may_write_is_read_from_its_leader(canned: CannedCluster) -> None:
    canned.true_ids["broker-b"] = {0: canned.addresses["broker-b"], 1: "broker-b-copy:10911"}
    stream = canned.client()
    assert stream.latest() == ends(canned)


@pytest.mark.parametrize("code", [ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR])
def test_a_refusal_that_will_not_pass_is_raised_at_once(canned: CannedCluster, code: int) -> None:
    pauses: list[int] = []
    cluster = cluster_of(canned, pauses)
    cluster.latest()
    canned.failures.append(CallRefused(code, "not readable"))
    with pytest.raises(CallRefused, match="not readable"):
        cluster.ask("broker-a", MaxOffset(topic="orders", queue_id=0))
    assert pauses == []


def test_time_runs_out(canned: CannedCluster) -> None:
    cluster = cluster_of(canned, timeout_ms=0)
    canned.failures += [ConnectFailed("nobody there")] * 9
    with pytest.raises(ConnectFailed, match="nobody there"):
        cluster.latest()


def test_a_broker_that_left_the_route_is_named(canned: CannedCluster) -> None:
    cluster = cluster_of(canned, timeout_ms=0)
    with pytest.raises(ConnectFailed, match="broker 'broker-z' is not in the route of orders"):
        cluster.ask("broker-z", MaxOffset(topic="orders", queue_id=0))


def test_an_unknown_topic_is_a_usage_error(canned: CannedCluster) -> None:
    with pytest.raises(UsageError, match="topic 'odrers' is unknown"):
        cluster_of(canned, topic="odrers").latest()


def test_the_unknown_one_of_several_topics_is_named_with_a_suggestion(
    canned: CannedCluster,
) -> None:
    options = SourceOptions(namesrv=(canned.namesrv,), topics=("orders", "ordres"))
    with pytest.raises(UsageError, match=r"topic 'ordres' is unknown .* did you mean 'orders'"):
        ClusterClient(options).latest()


def test_a_pattern_means_the_topics_that_there_are_now(canned: CannedCluster) -> None:
    options = SourceOptions(namesrv=(canned.namesrv,), topic_pattern="or.*")
    cluster = ClusterClient(options)
    assert cluster.topics() == ("orders",)
    assert cluster.latest() == ends(canned)
    canned.topic = "organs"
    assert cluster.topics() == ("organs",)
    canned.topic = "else"
    assert cluster.topics() == ()


def test_a_name_server_may_refuse_to_list_system_topics(
    canned: CannedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = canned.route

    def refuse_system_topics(call: Call[Any]) -> Reply:
        if isinstance(call, SystemTopics):
            raise CallRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "what?")
        return whole(call)

    monkeypatch.setattr(canned, "route", refuse_system_topics)
    assert ClusterClient(SourceOptions(namesrv=(canned.namesrv,), topic_pattern=".*")).topics()


def test_a_groups_progress(canned: CannedCluster) -> None:
    cluster = cluster_of(canned)
    cluster.latest()

    def progress(broker: str, call: QueryOffset) -> OffsetReply:
        assert call.set_zero_if_not_found is False
        if call.queue_id:
            raise CallRefused(ResponseCode.QUERY_NOT_FOUND, "none")
        if broker == "broker-b":
            raise CallRefused(ResponseCode.NO_PERMISSION, "not yours")
        return OffsetReply(offset=7)

    canned.reply_with(QueryOffset, progress)
    assert cluster.committed(("orders", "broker-a", 0), "g") == 7
    assert cluster.committed(("orders", "broker-a", 1), "g") is None
    with pytest.raises(CallRefused, match="not yours"):
        cluster.committed(("orders", "broker-b", 0), "g")


def test_a_topic_that_was_known_before_is_waited_for(canned: CannedCluster) -> None:
    cluster = cluster_of(canned)
    cluster.latest()
    canned.failures.append(CallRefused(ResponseCode.TOPIC_NOT_EXIST, "just started"))
    assert cluster.latest() == ends(canned)


def test_the_next_name_server_is_asked(canned: CannedCluster) -> None:
    cluster = cluster_of(canned, namesrv=("dead:9876", canned.namesrv))
    assert cluster.latest() == ends(canned)


def test_loss_is_an_error_unless_an_option_allows_it(
    canned: CannedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataLost, match="five are gone; failOnDataLoss=false"):
        cluster_of(canned).report_loss("five are gone")
    with caplog.at_level(logging.WARNING):
        cluster = cluster_of(canned, fail_on_data_loss=False)
        cluster.report_loss("five are gone", 5)
        cluster.report_loss("and two", 2)
    assert "five are gone" in caplog.text
    assert cluster.lost_count == 7


def test_a_long_wait_is_told_once_and_so_is_its_end(
    canned: CannedCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = PausedClock()
    monkeypatch.setattr(cluster_client, "SYSTEM_CLOCK", clock)
    cluster = ClusterClient(
        SourceOptions(namesrv=("n1:9876", "n2:9876"), topics=("orders",), timeout_ms=30_000),
        pause=clock.pause,
    )
    with pytest.raises(ConnectFailed, match="no name server of n1:9876, n2:9876 answers"):
        cluster.bounds()
    (text,) = caplog.messages
    assert text.startswith("name server: no name server of n1:9876, n2:9876 answers: cannot ")
    assert text.endswith("; waiting up to 30 s for it (option timeout)")
    canned.failures.extend(ConnectFailed("restarting") for _ in range(8))
    caplog.clear()
    canned.client(pause=clock.pause).earliest()
    assert [text.partition(";")[0] for text in caplog.messages] == [
        "name server: no name server of namesrv:9876 answers: restarting",
        "name server answers again after 4.5 s",
    ]
