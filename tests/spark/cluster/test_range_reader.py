"""Range reader: complete and ordered, however little a reply holds; lost offsets are reported."""

import logging
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.spark.conftest import Answer, CannedCluster

from roquet.arrow import records as arrow_records
from roquet.lake.queue_offsets import OffsetRange
from roquet.model.errors import ConnectionLost, RecordError
from roquet.model.flags import PullFlag, SysFlag
from roquet.spark.cluster import queue_cursors, range_reader
from roquet.spark.cluster.cluster_client import ClusterClient, DataLost
from roquet.spark.cluster.range_reader import RangeReader
from roquet.spark.options import SourceOptions
from roquet.wire.call import Call
from roquet.wire.calls.pull import Pull
from roquet.wire.codes import ResponseCode
from roquet.wire.records.record import decode, pack

a0, a1 = (partial(OffsetRange, "orders", "broker-a", queue_id) for queue_id in (0, 1))
COLUMNS = ("broker", "queue_id", "queue_offset", "body")


def reader(canned: CannedCluster, **settings: Any) -> RangeReader:
    options = SourceOptions(namesrv=(canned.namesrv,), topics=("orders",), **settings)
    return RangeReader(ClusterClient(options, pause=lambda ms: None), COLUMNS)


def rows(canned: CannedCluster, *pieces: OffsetRange, **settings: Any) -> list[tuple[Any, ...]]:
    batches = reader(canned, **settings).batches(pieces)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def expected(broker: str, queue_id: int, first: int, last: int) -> list[tuple[Any, ...]]:
    return [(broker, queue_id, at, b"body %d" % at) for at in range(first, last)]


@pytest.fixture
def filled(canned: CannedCluster) -> CannedCluster:
    for broker, queue_id in canned.queues:
        canned.send(broker, queue_id, *(b"body %d" % at for at in range(100)))
    return canned


@pytest.mark.parametrize("pull_max", [1, 7, 32, 1000])
@pytest.mark.parametrize("batch_bytes", [1, 1000, 10**6])
def test_ranges_are_read_exactly(
    filled: CannedCluster, pull_max: int, batch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "BATCH_BYTES", batch_bytes)
    filled.pull_max = pull_max
    result = rows(filled, OffsetRange("orders", "broker-b", 1, 3, 64), a0(0, 100))
    assert result == expected("broker-b", 1, 3, 64) + expected("broker-a", 0, 0, 100)


def test_small_pulls_make_one_batch(filled: CannedCluster) -> None:
    filled.pull_max = 5
    assert len(list(reader(filled).batches([a0(0, 100)]))) == 1


def test_a_broker_that_gives_more_than_asked_is_cut(filled: CannedCluster) -> None:
    piece = a0(10, 20)
    filled.answer = over_generous(filled.answer)
    assert rows(filled, piece) == expected("broker-a", 0, 10, 20)


def over_generous(answer: Answer) -> Answer:
    def more(broker: str, call: Call[Any]) -> Any:
        return answer(broker, msgspec.structs.replace(call, max_msg_nums=32))

    return more


def test_a_connection_that_breaks_costs_nothing(filled: CannedCluster) -> None:
    filled.pull_max = 10
    source = reader(filled)
    batches = source.batches([a0(0, 100)])
    filled.failures += [ConnectionLost("gone")] * 3
    assert sum(batch.num_rows for batch in batches) == 100


def test_bodies_that_are_restored_to_very_much_come_in_several_batches(
    filled: CannedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block of four megabytes may hold gigabytes."""
    monkeypatch.setattr(arrow_records, "UNFOLDED_MAX", 5_000)
    records = filled.queues["broker-a", 0].records
    for at in range(20):
        old = decode(records[at])
        records[at] = pack(
            old.queue_id, old.flag, old.queue_offset, old.position, old.sys_flag | 1, old.born_ms,
            old.born_host, old.stored_ms, old.store_host, 0, 0, zlib.compress(bytes(1_000)),
            old.topic.encode(), old.properties,
        )  # fmt: skip
    batches = [*reader(filled).batches([a0(0, 50)])]
    assert [row for batch in batches for row in batch["queue_offset"].to_pylist()] == [*range(50)]
    assert max(sum(map(len, batch["body"].to_pylist())) for batch in batches) < 6_000
    assert sum(batch["body"].to_pylist().count(bytes(1_000)) for batch in batches) == 20


def test_a_body_that_cannot_be_restored_is_an_error_with_advice(
    filled: CannedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    records = filled.queues["broker-a", 0].records
    flagged = bytearray(records[7])
    flagged[39] |= SysFlag.COMPRESSED
    records[7] = bytes(flagged)
    piece = a0(0, 50)
    with pytest.raises(RecordError, match=r"queue 0 offset 7 of .*not zlib.*failOnDataLoss=false"):
        rows(filled, piece)
    assert not caplog.messages
    result = rows(filled, piece, fail_on_data_loss=False)
    assert result == expected("broker-a", 0, 0, 50), "it comes as it is stored"
    (warning,) = caplog.messages
    assert warning.startswith("queue 0 offset 7 of broker 'broker-a': body is not zlib")
    assert rows(filled, piece, decompress=False) == expected("broker-a", 0, 0, 50)


def test_an_empty_range_makes_no_call(filled: CannedCluster) -> None:
    assert rows(filled, a0(5, 5)) == []
    assert filled.calls == []


@pytest.mark.parametrize(
    ("forgotten", "gaps", "piece", "text"),
    [
        (10, [], (3, 50), "lacks 7 of its messages: offsets 3 to 9;"),
        (0, [40], (0, 99), "lacks 1 of its messages: offsets 40;"),
        (0, [], (0, 120), "lacks 20 of its messages: offsets 100 to 119"),
        (
            0,
            range(90, 20, -10),
            (0, 93),
            "lacks 7 of its messages: offsets 30, 40, 50, 60, 70 and 2 more gaps;",
        ),
    ],
    ids=["taken by retention", "a gap", "the end, when time is up", "many gaps"],
)
def test_lost_messages_are_an_error_that_names_them(
    filled: CannedCluster, forgotten: int, gaps: Sequence[int], piece: tuple[int, int], text: str
) -> None:
    filled.queues["broker-a", 0].forget(forgotten)
    for at in gaps:
        del filled.queues["broker-a", 0].records[at]
    with pytest.raises(DataLost, match=f"queue 0 of broker 'broker-a' {text}"):
        rows(filled, a0(*piece), timeout_ms=0)


def test_the_rest_is_read_when_the_user_allows_loss(
    filled: CannedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    filled.queues["broker-a", 0].forget(10)
    with caplog.at_level(logging.WARNING):
        result = rows(filled, a0(3, 50), fail_on_data_loss=False)
    assert result == expected("broker-a", 0, 10, 50)
    assert "lacks 7 of its messages: offsets 3 to 9;" in caplog.text


def test_a_range_that_was_deleted_is_lost(filled: CannedCluster) -> None:
    filled.queues["broker-a", 0].forget(60)
    assert rows(filled, a0(3, 50), fail_on_data_loss=False) == []


def test_messages_out_of_order_are_refused(filled: CannedCluster) -> None:
    records = filled.queues["broker-a", 0].records
    records[4], records[5] = records[5], records[4]
    with pytest.raises(RecordError, match="out of order between 0 and 100"):
        rows(filled, a0(0, 100))


@pytest.fixture
def mixed(canned: CannedCluster, monkeypatch: pytest.MonkeyPatch) -> CannedCluster:
    """Two queues whose messages take turns, of a broker that gives them together."""
    monkeypatch.setattr(queue_cursors, "TOGETHER_ROWS_MIN", 20)
    for at in range(100):
        canned.send("broker-a", 0, b"body %d" % at)
        canned.send("broker-a", 1, b"body %d" % at)
    canned.gives_together = True
    return canned


BOTH = (a0(3, 95), a1(0, 90))
OF_BOTH = expected("broker-a", 0, 3, 95) + expected("broker-a", 1, 0, 90)


@pytest.mark.parametrize("pull_max", [7, 32, 1000])
def test_interleaved_queues_are_read_together(mixed: CannedCluster, pull_max: int) -> None:
    mixed.pull_max = pull_max
    result = rows(mixed, *BOTH)
    assert sorted(result) == OF_BOTH
    for queue_id in (0, 1):
        offsets = [offset for _, queue, offset, _ in result if queue == queue_id]
        assert offsets == sorted(offsets)
    pulls = [call for call in mixed.calls if isinstance(call, Pull)]
    assert len(pulls) <= 200 // pull_max + 5


def test_a_broker_that_knows_one_queue_at_a_time_is_read_as_well(mixed: CannedCluster) -> None:
    mixed.gives_together = False
    assert sorted(rows(mixed, *BOTH)) == OF_BOTH
    offered = [call for call in mixed.calls if isinstance(call, Pull) and call.body]
    assert len(offered) == 1


@pytest.mark.parametrize("damage", ["cut", "moved"])
def test_a_damaged_combined_reply_is_read_again_queue_by_queue(
    mixed: CannedCluster, damage: str
) -> None:
    good = mixed.answer

    def damaged(broker: str, call: Call[Any]) -> Any:
        reply = good(broker, call)
        if isinstance(call, Pull) and call.body:
            body = bytearray(reply.body)
            body[28] ^= 1  # the first record's position
            changed = reply.body[:-1] if damage == "cut" else bytes(body)
            return msgspec.structs.replace(reply, body=changed)
        return reply

    mixed.answer = damaged
    assert sorted(rows(mixed, *BOTH)) == OF_BOTH


def test_a_gap_in_a_combined_reply_is_detected(mixed: CannedCluster) -> None:
    del mixed.queues["broker-a", 1].records[40]
    del mixed.queues["broker-a", 1].positions[40]
    with pytest.raises(
        DataLost, match="queue 1 of broker 'broker-a' lacks 1 of its messages: offsets 40;"
    ):
        rows(mixed, *BOTH)


def test_the_next_pull_is_asked_for_before_a_batch_is_made(mixed: CannedCluster) -> None:
    mixed.pull_max = 32
    batches = reader(mixed).batches(BOTH)
    next(batches)
    assert len(mixed.asked_ahead) == 1
    list(batches)
    pulls = [call for call in mixed.calls if isinstance(call, Pull)]
    assert pulls[1:] == mixed.asked_ahead


def split(block: bytes) -> list[bytes]:
    records, at = list[bytes](), 0
    while at < len(block):
        size = int.from_bytes(block[at : at + 4], "big")
        records.append(block[at : at + size])
        at += size
    return records


@pytest.fixture
def tagged(canned: CannedCluster) -> CannedCluster:
    """Every tenth message has a tag; the broker filters by it, and looks at 7 messages a pull."""
    for at in range(100):
        canned.send("broker-a", 0, b"body %d" % at, TAGS="wanted" if at % 10 == 0 else "other")
    whole = canned.answer

    def filtering(broker: str, call: Call[Any]) -> Any:
        reply = whole(broker, call)
        if not isinstance(call, Pull) or not reply.body:
            return reply
        assert call.subscription == "wanted"
        assert call.sys_flag & PullFlag.SUBSCRIPTION
        kept = [one for one in split(reply.body) if b"wanted" in one]
        code = ResponseCode.SUCCESS if kept else ResponseCode.PULL_RETRY_IMMEDIATELY
        return msgspec.structs.replace(reply, code=code, body=b"".join(kept))

    canned.answer = filtering
    canned.pull_max = 7
    return canned


def test_filtered_messages_are_not_lost(tagged: CannedCluster) -> None:
    result = rows(tagged, a0(5, 95), tags=("wanted",))
    assert [row[2] for row in result] == [10, 20, 30, 40, 50, 60, 70, 80, 90]


def test_messages_deleted_by_retention_are_lost_even_with_a_filter(
    tagged: CannedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    tagged.queues["broker-a", 0].forget(25)
    piece = a0(5, 95)
    with pytest.raises(DataLost, match=r"queue 0 .* lacks 20 of its messages: offsets 5 to 24;"):
        rows(tagged, piece, tags=("wanted",))
    result = rows(tagged, piece, tags=("wanted",), fail_on_data_loss=False)
    assert [row[2] for row in result] == [30, 40, 50, 60, 70, 80, 90]
    assert "lacks 20 of its messages: offsets 5 to 24; continuing" in caplog.text


def test_messages_missing_at_the_end_are_lost_even_with_a_filter(tagged: CannedCluster) -> None:
    piece = a0(90, 120)
    with pytest.raises(DataLost, match="lacks 20 of its messages: offsets 100 to 119;"):
        rows(tagged, piece, tags=("wanted",), timeout_ms=0)


def test_with_a_filter_queues_are_read_one_by_one(mixed: CannedCluster) -> None:
    assert len(rows(mixed, *BOTH, sql92="a = 1")) == 92 + 90, "this broker does not look at it"
    pulls = [call for call in mixed.calls if isinstance(call, Pull)]
    assert {(call.subscription, call.expression_type) for call in pulls} == {("a = 1", "SQL92")}
    assert not [call for call in pulls if call.body]


@pytest.mark.parametrize("pieces", [1, 2])
def test_messages_of_a_recreated_topic_are_not_taken_for_those_of_the_old_one(
    filled: CannedCluster, pieces: int, caplog: pytest.LogCaptureFixture
) -> None:
    filled.topic_ids["broker-a"] = "2-2"
    wanted = [
        OffsetRange("orders", "broker-a", queue_id, 10, 90, "1-1") for queue_id in range(pieces)
    ]
    with pytest.raises(DataLost, match="made anew"):
        rows(filled, *wanted)
    assert rows(filled, *wanted, fail_on_data_loss=False) == []
    lacks = [one for one in caplog.records if "lacks 80 of its messages" in one.getMessage()]
    assert len(lacks) == pieces
    same = [msgspec.structs.replace(piece, topic_id="2-2") for piece in wanted]
    assert len(rows(filled, *same)) == 80 * pieces
