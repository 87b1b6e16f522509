"""Stream reader: consecutive ranges, each readable again."""

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)
from tests.spark.conftest import CannedCluster, PausedClock

from roquet.lake import queue_offsets
from roquet.lake.queue_offsets import AWAY_KEY, OffsetRange
from roquet.model.errors import ConfigError, ConnectFailed, ConnectionLost
from roquet.spark.cluster import cluster_client, latest_offsets
from roquet.spark.cluster.cluster_client import DataLost
from roquet.spark.options import SourceOptions, parse
from roquet.spark.source import stream, trigger_limits
from roquet.spark.source.stream import StreamReader
from roquet.wire.call import Call
from roquet.wire.calls.route import GetRoute

ALL = ReadAllAvailable()
ZERO = {"orders": {"broker-a": {"0": 0, "1": 0}, "broker-b": {"0": 0, "1": 0}}}


NOW = PausedClock()


@pytest.fixture(autouse=True)
def _set_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    NOW.__init__()  # type: ignore[misc]
    for module in (stream, latest_offsets, cluster_client):
        monkeypatch.setattr(module, "SYSTEM_CLOCK", NOW)


@pytest.fixture
def silent(canned: CannedCluster, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Brokers that are in the route and do not answer."""
    brokers: set[str] = set()
    answer = canned.answer

    def answers(broker: str, call: Call[Any]) -> Any:
        if broker in brokers:
            raise ConnectFailed(f"cannot connect to {broker}")
        return answer(broker, call)

    monkeypatch.setattr(canned, "answer", answers)
    return brokers


def add_broker(canned: CannedCluster, name: str) -> None:
    canned.addresses[name] = f"{name}:10911"
    canned.queues |= {(name, i): type(canned.queues["broker-a", 0])() for i in (0, 1)}


def reader(canned: CannedCluster, *, ends: bool = False, **options: str) -> StreamReader:
    """A stream; with `ends` it is a run to the messages that there are now."""
    settings = parse({"namesrv": canned.namesrv, "topic": "orders", **options}, {})
    stream_reader = StreamReader(settings, ("body",), NOW.pause)
    if ends:
        stream_reader.prepareForTriggerAvailableNow()
    return stream_reader


def pieces(
    stream_reader: StreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[OffsetRange]:
    return [piece for task in stream_reader.partitions(start, end) for piece in task.value]


def test_a_new_query_begins_at_the_same_offsets_however_often_spark_asks(
    canned: CannedCluster,
) -> None:
    canned.send("broker-a", 0, b"old")
    assert reader(canned).initialOffset() == ZERO
    latest = reader(canned, startingOffsets="latest")
    first = latest.initialOffset()
    canned.send("broker-a", 0, b"new")
    assert first["orders"]["broker-a"]["0"] == 1
    assert latest.initialOffset() == first


def test_batches_follow_one_another(canned: CannedCluster) -> None:
    stream_reader = reader(canned)
    canned.send("broker-a", 0, b"one", b"two")
    middle = stream_reader.latestOffset(ZERO, ALL)
    canned.send("broker-a", 0, b"three")
    canned.send("broker-b", 1, b"four")
    end = stream_reader.latestOffset(middle, ALL)
    assert pieces(stream_reader, ZERO, middle) == [OffsetRange("orders", "broker-a", 0, 0, 2)]
    assert pieces(stream_reader, middle, end) == [
        OffsetRange("orders", "broker-a", 0, 2, 3),
        OffsetRange("orders", "broker-b", 1, 0, 1),
    ]
    assert pieces(stream_reader, ZERO, middle) == [OffsetRange("orders", "broker-a", 0, 0, 2)], (
        "again the same"
    )
    assert stream_reader.reportLatestOffset() == end


def test_without_new_messages_the_end_is_the_start(canned: CannedCluster) -> None:
    stream_reader = reader(canned)
    canned.send("broker-a", 0, b"one")
    end = stream_reader.latestOffset(ZERO, ALL)
    assert stream_reader.latestOffset(end, ALL) == end
    assert list(stream_reader.partitions(end, end)) == []


def test_an_idle_query_is_kept_for_a_moment(canned: CannedCluster) -> None:
    stream_reader = reader(canned)
    assert stream_reader.latestOffset(ZERO, ALL) == ZERO
    assert sum(NOW.pauses) >= stream.IDLE_MS


def test_a_message_ends_the_wait(canned: CannedCluster) -> None:
    stream_reader = reader(canned)
    NOW.on_pause = lambda: canned.send("broker-b", 0, b"at last")
    assert stream_reader.latestOffset(ZERO, ALL)["orders"]["broker-b"]["0"] == 1


def test_polls_are_rarer_the_longer_a_topic_is_quiet(canned: CannedCluster) -> None:
    stream_reader = reader(canned)
    for _ in range(4):
        assert stream_reader.latestOffset(ZERO, ALL) == ZERO
    assert NOW.pauses == sorted(NOW.pauses)
    assert (NOW.pauses[0], NOW.pauses[-1]) == (
        trigger_limits.PAUSE_MS_MIN,
        trigger_limits.PAUSE_MS_MAX,
    )
    canned.send("broker-a", 0, b"one")
    end = stream_reader.latestOffset(ZERO, ALL)
    del NOW.pauses[:]
    assert stream_reader.latestOffset(end, ALL) == end
    assert NOW.pauses[0] == 10, "after a message the next one may be near"


def test_a_poll_is_one_call_per_broker_and_sometimes_one_for_the_route(
    canned: CannedCluster,
) -> None:
    stream_reader = reader(canned)
    stream_reader.latestOffset(ZERO, ALL)
    del canned.calls[:], NOW.pauses[:]
    stream_reader.latestOffset(ZERO, ALL)
    routes = [call for call in canned.calls if isinstance(call, GetRoute)]
    assert len(canned.calls) - len(routes) == 2 * (len(NOW.pauses) + 1)
    assert len(routes) <= 1


def test_a_batch_has_the_limit_that_spark_passes(canned: CannedCluster) -> None:
    stream_reader = reader(canned, maxOffsetsPerTrigger="10")
    assert stream_reader.getDefaultReadLimit() == ReadMaxRows(10)
    assert isinstance(reader(canned).getDefaultReadLimit(), ReadAllAvailable)
    for queue in canned.queues:
        canned.send(*queue, *[b"x"] * 100)
    end = stream_reader.latestOffset(ZERO, ReadMaxRows(10))
    assert sum(map(len, pieces(stream_reader, ZERO, end))) == 10
    assert sum(map(len, pieces(stream_reader, ZERO, stream_reader.latestOffset(ZERO, ALL)))) == 400


def test_bytes_limit_a_batch_by_the_size_of_messages_where_it_begins_and_ends(
    canned: CannedCluster,
) -> None:
    canned.send("broker-a", 0, *[b"x" * 900] * 100)
    canned.send("broker-b", 0, *[b"x" * 900] * 300)
    stream_reader = reader(canned, maxBytesPerTrigger="100KiB")
    assert stream_reader.getDefaultReadLimit() == ReadMaxBytes(102_400)
    end = stream_reader.latestOffset(ZERO, ReadMaxBytes(102_400))
    taken = {piece.broker: len(piece) for piece in pieces(stream_reader, ZERO, end)}
    record = len(canned.queues["broker-a", 0].records[0])
    assert 0.97 * 102_400 < sum(taken.values()) * record <= 102_400
    assert taken["broker-b"] == pytest.approx(3 * taken["broker-a"], abs=3)


def test_growing_messages_are_sampled_at_the_end_of_the_queue(canned: CannedCluster) -> None:
    canned.send("broker-a", 0, *[b"x" * 10] * 1000, *[b"x" * 9_000] * 1000)
    stream_reader = reader(canned, maxBytesPerTrigger="1MiB")
    end = stream_reader.latestOffset(ZERO, ReadMaxBytes(2**20))
    rows = end["orders"]["broker-a"]["0"]
    size = sum(map(len, canned.queues["broker-a", 0].records[:rows]))
    assert size < 1.5 * 2**20, "by the first messages alone it were all of them"


def test_the_smaller_of_two_limits_counts(canned: CannedCluster) -> None:
    canned.send("broker-a", 0, *[b"x" * 900] * 100)
    stream_reader = reader(canned, maxBytesPerTrigger="100KiB", maxOffsetsPerTrigger="7")
    end = stream_reader.latestOffset(ZERO, stream_reader.getDefaultReadLimit())
    assert sum(map(len, pieces(stream_reader, ZERO, end))) == 7


def test_once_reads_all_there_is_whatever_the_limits(canned: CannedCluster) -> None:
    canned.send("broker-a", 0, *[b"x"] * 50)
    stream_reader = reader(canned, maxOffsetsPerTrigger="7", maxBytesPerTrigger="1KiB")
    assert stream_reader.latestOffset(ZERO, ALL)["orders"]["broker-a"]["0"] == 50


def test_few_messages_wait_for_more_of_them(canned: CannedCluster) -> None:
    stream_reader = reader(canned, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    limit = stream_reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    canned.send("broker-a", 0, b"first")
    first = stream_reader.latestOffset(ZERO, limit)
    assert first["orders"]["broker-a"]["0"] == 1, "a run begins with what there is"
    canned.send("broker-a", 0, *[b"x"] * 9)
    assert stream_reader.latestOffset(first, limit) == first
    canned.send("broker-b", 1, b"the tenth")
    assert (
        sum(map(len, pieces(stream_reader, first, stream_reader.latestOffset(first, limit)))) == 10
    )


def test_few_messages_wait_no_longer_than_the_delay(canned: CannedCluster) -> None:
    stream_reader = reader(canned, minOffsetsPerTrigger="10", maxTriggerDelay="10s")
    limit = stream_reader.getDefaultReadLimit()
    canned.send("broker-a", 0, b"first")
    first, began_ms = stream_reader.latestOffset(ZERO, limit), NOW.ms
    canned.send("broker-a", 0, b"second")
    while (end := stream_reader.latestOffset(first, limit)) == first:
        pass
    assert len(pieces(stream_reader, first, end)) == 1
    assert 10_000 <= NOW.ms - began_ms <= 10_200


def test_a_run_that_is_to_end_holds_nothing_back(canned: CannedCluster) -> None:
    stream_reader = reader(
        canned, minOffsetsPerTrigger="2", maxOffsetsPerTrigger="2", maxTriggerDelay="1h"
    )
    canned.send("broker-a", 0, *[b"x"] * 5)
    stream_reader.prepareForTriggerAvailableNow()
    at, batches = ZERO, []
    while (end := stream_reader.latestOffset(at, stream_reader.getDefaultReadLimit())) != at:
        batches.append(sum(map(len, pieces(stream_reader, at, end))))
        at = end
    assert batches == [2, 2, 1]


def test_available_now_reads_the_messages_of_its_start_and_no_more(canned: CannedCluster) -> None:
    stream_reader = reader(canned)
    canned.send("broker-a", 0, *[b"x"] * 5)
    stream_reader.prepareForTriggerAvailableNow()
    canned.send("broker-a", 0, b"too late")
    add_broker(canned, "broker-c")
    middle = stream_reader.latestOffset(ZERO, ReadMaxRows(3))
    end = stream_reader.latestOffset(middle, ReadMaxRows(3))
    assert end == {"orders": {**ZERO["orders"], "broker-a": {"0": 5, "1": 0}}}
    assert stream_reader.latestOffset(end, ReadMaxRows(3)) == end


def test_queues_of_a_new_broker_are_read_from_their_first_message(canned: CannedCluster) -> None:
    stream_reader = reader(canned, startingOffsets="latest")
    start = stream_reader.latestOffset(stream_reader.initialOffset(), ALL)
    add_broker(canned, "broker-c")
    canned.send("broker-c", 1, b"gone", b"one", b"two")
    canned.queues["broker-c", 1].forget(1)
    canned.send("broker-a", 0, b"x")
    NOW.pause(1000)
    noted = stream_reader.latestOffset(start, ALL)
    assert noted["orders"]["broker-c"] == {"0": 0, "1": 1}
    assert pieces(stream_reader, start, noted) == [OffsetRange("orders", "broker-a", 0, 0, 1)], (
        "a batch that notes where they begin holds up nobody"
    )
    end = stream_reader.latestOffset(noted, ALL)
    assert pieces(stream_reader, noted, end) == [OffsetRange("orders", "broker-c", 1, 1, 3)]


def test_the_offsets_alone_determine_a_batch(canned: CannedCluster) -> None:
    canned.send("broker-a", 0, *[b"x"] * 9)
    start = {"orders": {"broker-b": {"0": 0, "1": 0}}}
    end = reader(canned).latestOffset(start, ALL)
    first = pieces(reader(canned), start, end)
    canned.queues["broker-a", 0].forget(5)
    assert pieces(reader(canned), start, end) == first


def test_more_queues_of_a_known_broker_are_found(canned: CannedCluster) -> None:
    start = {"orders": {name: {"0": 0} for name in canned.addresses}}
    canned.send("broker-a", 1, b"one")
    stream_reader = reader(canned)
    noted = stream_reader.latestOffset(start, ALL)
    assert noted == ZERO
    assert pieces(stream_reader, noted, stream_reader.latestOffset(noted, ALL)) == [
        OffsetRange("orders", "broker-a", 1, 0, 1)
    ]


def test_a_broker_that_is_away_stops_its_own_queues_only(
    canned: CannedCluster, silent: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    canned.send("broker-b", 0, b"one")
    stream_reader = reader(canned)
    end = stream_reader.latestOffset(ZERO, ALL)
    silent.add("broker-b")
    canned.send("broker-a", 0, b"two")
    canned.send("broker-b", 0, b"waits")
    after = stream_reader.latestOffset(end, ALL)
    assert pieces(stream_reader, end, after) == [OffsetRange("orders", "broker-a", 0, 0, 1)]
    assert after["orders"]["broker-b"] == {"0": 1, "1": 0}, "they stay where they are"
    for _ in range(20):
        assert stream_reader.latestOffset(after, ALL) == after
    NOW.pause(120_000)
    for _ in range(20):
        assert stream_reader.latestOffset(after, ALL) == after
    warnings = [record.getMessage() for record in caplog.records if "away" in record.getMessage()]
    assert len(warnings) == 2, "once at first, once when it took longer than the timeout"
    assert "broker 'broker-b' is away, its queues wait" in warnings[0]
    report = stream_reader.reportLatestOffset()
    assert report is not None
    assert report["orders"]["broker-b"]["0"] == 1, "as far as was known"
    assert report[AWAY_KEY]["broker-b"]["seconds"] >= 60
    silent.clear()
    NOW.pause(2000)
    back = stream_reader.latestOffset(after, ALL)
    assert pieces(stream_reader, after, back) == [OffsetRange("orders", "broker-b", 0, 1, 2)]
    assert AWAY_KEY not in (stream_reader.reportLatestOffset() or {})


def test_a_broker_that_left_the_route_is_away(canned: CannedCluster) -> None:
    end = reader(canned).latestOffset(ZERO, ALL)
    del canned.addresses["broker-b"]
    canned.send("broker-a", 0, b"two")
    stream_reader = reader(canned)
    after = stream_reader.latestOffset(end, ALL)
    assert after == {"orders": {**ZERO["orders"], "broker-a": {"0": 1, "1": 0}}}


def test_a_known_broker_is_read_without_a_route(canned: CannedCluster) -> None:
    stream_reader = reader(canned)
    stream_reader.latestOffset(ZERO, ALL)
    canned.send("broker-b", 0, b"one")
    canned.topic = "other"  # unknown, as by a name server that has just started
    NOW.pause(2000)
    assert stream_reader.latestOffset(ZERO, ALL)["orders"]["broker-b"]["0"] == 1


def test_a_broker_that_is_away_is_asked_once_a_second(
    canned: CannedCluster, silent: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = canned.answer
    silent.add("broker-b")
    stream_reader = reader(canned)
    stream_reader.latestOffset(ZERO, ALL)
    began_ms, attempts = NOW.ms, list[str]()

    def noted(broker: str, call: Call[Any]) -> Any:
        attempts.append(broker)
        return answer(broker, call)

    monkeypatch.setattr(canned, "answer", noted)
    while NOW.ms < began_ms + 5_000:
        stream_reader.latestOffset(ZERO, ALL)
    assert 4 <= attempts.count("broker-b") <= 6
    assert attempts.count("broker-a") > 40


def test_a_connection_that_ended_between_two_polls_is_no_absence(canned: CannedCluster) -> None:
    stream_reader = reader(canned)
    stream_reader.latestOffset(ZERO, ALL)
    canned.send("broker-a", 0, b"one")
    canned.failures.append(ConnectionLost("it started again"))
    assert stream_reader.latestOffset(ZERO, ALL)["orders"]["broker-a"]["0"] == 1
    assert AWAY_KEY not in (stream_reader.reportLatestOffset() or {})


def test_a_run_that_is_to_end_does_not_begin_without_a_broker(
    canned: CannedCluster, silent: set[str]
) -> None:
    silent.add("broker-b")
    stream_reader = reader(canned, timeout="5s")
    with pytest.raises(DataLost, match="broker 'broker-b' is away: this run would end"):
        stream_reader.prepareForTriggerAvailableNow()
    assert sum(NOW.pauses) >= 5_000, "it was given time"


def test_with_fail_on_data_loss_false_a_run_ends_without_an_absent_broker(
    canned: CannedCluster, silent: set[str]
) -> None:
    silent.add("broker-b")
    canned.send("broker-a", 0, b"one")
    stream_reader = reader(canned, ends=True, timeout="5s", failOnDataLoss="false")
    end = stream_reader.latestOffset(ZERO, ALL)
    assert end["orders"] == {"broker-a": {"0": 1, "1": 0}, "broker-b": {"0": 0, "1": 0}}
    assert stream_reader.latestOffset(end, ALL) == end


def test_a_run_does_not_end_without_a_broker_that_went_away_meanwhile(
    canned: CannedCluster, silent: set[str]
) -> None:
    canned.send("broker-b", 0, b"one")
    stream_reader = reader(canned, ends=True, timeout="5s")
    silent.add("broker-b")
    with pytest.raises(DataLost, match="'broker-b' is away"):
        stream_reader.latestOffset(ZERO, ALL)
    again = reader(canned, timeout="5s")
    silent.clear()
    again.prepareForTriggerAvailableNow()
    silent.add("broker-b")

    def return_after_seven_seconds() -> None:
        if NOW.ms > 1_007_000:
            silent.clear()

    NOW.on_pause = return_after_seven_seconds
    assert again.latestOffset(ZERO, ALL)["orders"]["broker-b"]["0"] == 1, "it came back in time"


def test_a_run_does_not_end_without_a_broker_that_has_left_the_route(canned: CannedCluster) -> None:
    del canned.addresses["broker-b"]
    stream_reader = reader(canned, ends=True)
    with pytest.raises(DataLost, match="'broker-b' is away"):
        stream_reader.latestOffset(ZERO, ALL)


def test_a_run_waits_for_a_broker_that_name_servers_do_not_know_this_moment(
    canned: CannedCluster,
) -> None:
    address = canned.addresses.pop("broker-b")
    canned.send("broker-b", 0, b"one")
    stream_reader = reader(canned, ends=True, timeout="5s")

    def add_the_address() -> None:
        canned.addresses["broker-b"] = address

    NOW.on_pause = add_the_address
    assert stream_reader.latestOffset(ZERO, ALL)["orders"]["broker-b"]["0"] == 1
    assert NOW.pauses


REMOVED = {"orders": {**ZERO["orders"], "broker-a": {"0": 0, "1": 0, "2": 5}}}
"""Offsets of a topic that has had a queue more."""


def remove_queue(canned: CannedCluster, messages: int) -> None:
    """A queue with so many messages that is in no route and in no statistics any more."""
    canned.queues["broker-a", 2] = type(canned.queues["broker-a", 0])()
    canned.send("broker-a", 2, *[b"x"] * messages)
    canned.removed.add(2)


@pytest.mark.parametrize("ends", [False, True])
def test_a_removed_queue_that_was_read_to_its_end_is_no_loss(
    canned: CannedCluster, ends: bool
) -> None:
    remove_queue(canned, 5)
    canned.queues["broker-a", 2].forget(5)  # retention may have taken what was read
    canned.send("broker-a", 0, b"one")
    stream_reader = reader(canned, ends=ends)
    end = stream_reader.latestOffset(REMOVED, ALL)
    assert end["orders"]["broker-a"] == {"0": 1, "1": 0, "2": 5}
    assert pieces(stream_reader, REMOVED, end) == [OffsetRange("orders", "broker-a", 0, 0, 1)]
    assert stream_reader.latestOffset(end, ALL) == end


@pytest.mark.parametrize("ends", [False, True])
def test_a_removed_queue_with_unread_messages_says_how_they_can_be_read(
    canned: CannedCluster, ends: bool
) -> None:
    remove_queue(canned, 9)
    strict = reader(canned, ends=ends)
    allowed = reader(canned, ends=ends, failOnDataLoss="false")
    expected = (
        "queue 2 of broker 'broker-a', read up to offset 5, was removed from the topic with"
        " messages up to offset 8: let the topic have 3 queues to read until they are read"
        r" \(roquet topic update orders --read-queues 3\)"
    )
    with pytest.raises(DataLost, match=expected):
        strict.latestOffset(REMOVED, ALL)
    assert allowed.latestOffset(REMOVED, ALL) == REMOVED


def test_a_removed_queue_that_is_shorter_than_it_was_read_is_a_loss(canned: CannedCluster) -> None:
    remove_queue(canned, 0)
    stream_reader = reader(canned, ends=True)
    with pytest.raises(
        DataLost, match="queue 2 of broker 'broker-a' ends at offset 0, but was read up to 5"
    ):
        stream_reader.latestOffset(REMOVED, ALL)
    allowed = reader(canned, ends=True, failOnDataLoss="false")
    assert allowed.latestOffset(REMOVED, ALL)["orders"]["broker-a"]["2"] == 0
    assert not NOW.pauses


def test_a_leaders_copy_that_lacks_its_newest_messages_is_no_loss(canned: CannedCluster) -> None:
    canned.send("broker-b", 0, b"one", b"two")
    stream_reader = reader(canned)
    end = stream_reader.latestOffset(ZERO, ALL)
    del canned.queues["broker-b", 0].records[1:]  # the copy has one message less
    canned.addresses["broker-b"] = "copy:10911"
    canned.broker_ids["broker-b"] = 1
    canned.send("broker-a", 0, b"three")
    again = reader(canned, failOnDataLoss="false")
    after = again.latestOffset(end, ALL)
    assert after["orders"]["broker-b"] == {"0": 2, "1": 0}, "it waits, nothing is read again"
    assert after["orders"]["broker-a"]["0"] == 1


def test_a_run_needs_its_topic(canned: CannedCluster) -> None:
    canned.topic = "other"
    with pytest.raises(ConnectFailed, match="topic 'orders' is not found"):
        reader(canned, timeout="1s").prepareForTriggerAvailableNow()


def test_a_recreated_topic_is_read_from_its_beginning_when_loss_is_allowed(
    canned: CannedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    canned.send("broker-a", 0, *[b"x"] * 9)
    end = reader(canned).latestOffset(ZERO, ALL)
    canned.queues["broker-a", 0].records.clear()
    canned.send("broker-a", 0, b"new")
    with pytest.raises(DataLost, match="ends at offset 1, but was read up to 9"):
        reader(canned).latestOffset(end, ALL)
    stream_reader = reader(canned, failOnDataLoss="false")
    noted = stream_reader.latestOffset(end, ALL)
    after = stream_reader.latestOffset(noted, ALL)
    assert pieces(stream_reader, noted, after) == [OffsetRange("orders", "broker-a", 0, 0, 1)]
    assert sum("ends at offset 1" in record.getMessage() for record in caplog.records) == 1


def test_messages_that_retention_took_before_they_were_read_are_an_error_that_names_them(
    canned: CannedCluster,
) -> None:
    canned.send("broker-a", 0, *[b"x"] * 9)
    canned.queues["broker-a", 0].forget(4)
    with pytest.raises(DataLost, match=r"queue 0 of broker 'broker-a' has no .* offset 0 to 3"):
        reader(canned).latestOffset(ZERO, ALL)
    stream_reader = reader(canned, failOnDataLoss="false")
    assert stream_reader.latestOffset(ZERO, ALL)["orders"]["broker-a"]["0"] == 9


def test_a_checkpoint_of_another_topic_or_shape_is_refused(canned: CannedCluster) -> None:
    with pytest.raises(ConfigError, match="checkpoint is of topic 'paid'"):
        reader(canned).latestOffset({"paid": {"broker-a": {"0": 1}}}, ALL)
    with pytest.raises(ConfigError, match="another version of this one"):
        reader(canned).latestOffset({"broker-a": {"0": 1}}, ALL)
    with pytest.raises(ConfigError, match="another version of this one"):
        reader(canned).partitions({"broker-a": {"0": 1}}, {"broker-a": {"0": 2}})


def test_a_pattern_may_have_matched_the_topics_of_its_checkpoint(canned: CannedCluster) -> None:
    options_of_read = {"namesrv": canned.namesrv, "topicPattern": "ord.*"}
    stream_reader = StreamReader(parse(options_of_read, {}), ("body",))
    canned.send("broker-a", 0, b"one")
    assert stream_reader.latestOffset(ZERO, ALL)["orders"]["broker-a"]["0"] == 1
    with pytest.raises(ConfigError, match="checkpoint is of topic 'paid'"):
        stream_reader.latestOffset({"paid": {"broker-a": {"0": 1}}}, ALL)


class RecordingPublisher:
    def __init__(self, settings: SourceOptions, group: str) -> None:
        self.group = group
        self.done: list[Any] = []

    def check(self) -> None:
        self.done.append("checked")

    def publish(self, offsets: queue_offsets.QueueOffsets, ids: queue_offsets.TopicIds) -> None:
        self.done.append(queue_offsets.checkpoint(offsets, ids))


def test_progress_is_published_when_spark_commits_a_batch(
    canned: CannedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishers: list[RecordingPublisher] = []

    def open_publisher(settings: SourceOptions, group: str) -> RecordingPublisher:
        publishers.append(RecordingPublisher(settings, group))
        return publishers[-1]

    monkeypatch.setattr(stream, "ProgressPublisher", open_publisher)
    stream_reader = reader(canned, publishProgress="lake")
    (publisher,) = publishers
    canned.send("broker-a", 1, b"one")
    end = stream_reader.latestOffset(ZERO, ALL)
    stream_reader.latestOffset(end, ALL)
    assert (publisher.group, publisher.done) == ("lake", ["checked"])
    stream_reader.commit(end)
    assert publisher.done[1:] == [end]


def test_without_a_group_nothing_is_published(canned: CannedCluster) -> None:
    stream_reader = reader(canned)
    del canned.calls[:]
    stream_reader.commit(ZERO)
    assert canned.calls == []


def test_a_worker_reads_the_planned_range(canned: CannedCluster) -> None:
    canned.send("broker-a", 0, b"one")
    stream_reader = reader(canned)
    (task,) = stream_reader.partitions(ZERO, stream_reader.latestOffset(ZERO, ALL))
    (batch,) = stream_reader.read(task)
    assert batch.to_pydict() == {"body": [b"one"]}


OLD, NEW = "1763836680000-17", "1763836690000-19"


@pytest.fixture
def longer(canned: CannedCluster) -> dict[str, Any]:
    """A checkpoint of 200 messages; the topic is deleted, made anew and has 300."""
    canned.topic_ids["broker-a"] = OLD
    canned.send("broker-a", 0, *[b"old"] * 200)
    end = reader(canned).latestOffset(ZERO, ALL)
    assert end[queue_offsets.TOPIC_IDS_KEY] == {"orders": {"broker-a": OLD}}
    canned.recreate("broker-a", NEW)
    canned.send("broker-a", 0, *[b"new"] * 300)
    return end


def test_a_recreated_longer_topic_is_an_error_with_advice(
    canned: CannedCluster, longer: dict[str, Any]
) -> None:
    message = "'orders' of broker 'broker-a' was deleted and made anew at 2025-11-22 18:38:10 UTC"
    with pytest.raises(DataLost, match=message) as error:
        reader(canned).latestOffset(longer, ALL)
    assert "queue 0 up to offset 200" in str(error.value)
    assert "failOnDataLoss=false continues at the beginning of the new one" in str(error.value)


def test_a_recreated_longer_topic_is_read_from_its_beginning_when_loss_is_allowed(
    canned: CannedCluster, longer: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    stream_reader = reader(canned, failOnDataLoss="false")
    noted = stream_reader.latestOffset(longer, ALL)
    assert noted[queue_offsets.TOPIC_IDS_KEY] == {"orders": {"broker-a": NEW}}
    assert pieces(stream_reader, longer, noted) == []
    after = stream_reader.latestOffset(noted, ALL)
    assert pieces(stream_reader, noted, after) == [
        OffsetRange("orders", "broker-a", 0, 0, 300, NEW)
    ]
    assert stream_reader.latestOffset(after, ALL) == after
    assert sum("made anew" in record.getMessage() for record in caplog.records) == 1


def test_a_run_that_ends_reads_all_of_a_recreated_topic(
    canned: CannedCluster, longer: dict[str, Any]
) -> None:
    stream_reader = reader(canned, ends=True, failOnDataLoss="false")
    noted = stream_reader.latestOffset(longer, ALL)
    after = stream_reader.latestOffset(noted, ALL)
    assert sum(map(len, pieces(stream_reader, noted, after))) == 300
    assert stream_reader.latestOffset(after, ALL) == after


def test_a_checkpoint_of_before_takes_the_topic_that_is_there(canned: CannedCluster) -> None:
    canned.topic_ids["broker-a"] = OLD
    canned.send("broker-a", 0, b"one")
    end = reader(canned).latestOffset(ZERO, ALL)
    assert end == {**ZERO, "orders": {**ZERO["orders"], "broker-a": {"0": 1, "1": 0}}} | {
        queue_offsets.TOPIC_IDS_KEY: {"orders": {"broker-a": OLD}}
    }


def test_a_topic_of_which_nothing_was_read_is_read_as_the_one_that_it_is(
    canned: CannedCluster,
) -> None:
    canned.topic_ids["broker-a"] = OLD
    first = reader(canned).initialOffset()
    canned.recreate("broker-a", NEW)
    canned.send("broker-a", 0, b"new")
    stream_reader = reader(canned)
    end = stream_reader.latestOffset(first, ALL)
    assert pieces(stream_reader, first, end) == [OffsetRange("orders", "broker-a", 0, 0, 1, NEW)]


def test_a_batch_that_was_planned_before_is_not_read_from_the_new_topic(
    canned: CannedCluster, longer: dict[str, Any]
) -> None:
    """Spark plans it anew from its own notes, after a crash for example."""
    canned.topic_ids["broker-a"] = NEW
    choices: tuple[Any, ...] = ({}, {"failOnDataLoss": "false"})
    for options in choices:
        stream_reader = reader(canned, timeout="0s", **options)
        (task,) = stream_reader.partitions(ZERO, longer)
        if options:
            assert list(stream_reader.read(task)) == []
        else:
            with pytest.raises(DataLost, match="made anew"):
                list(stream_reader.read(task))
