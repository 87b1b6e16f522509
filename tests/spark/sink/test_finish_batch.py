"""Finishing a batch: each row becomes visible once, whatever brokers answer."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.lake.queue_offsets import OffsetsJson
from roquet.model.errors import CallTimeout
from roquet.spark.sink.commit_half_messages import CommitOutcome, HalfMessageRef
from roquet.spark.sink.commit_records import CommitRecord
from roquet.spark.sink.finish_batch import BatchFinisher, refs_at
from roquet.spark.sink.half_message_refs import PARTITION_SHIFT, SCHEMA
from roquet.spark.sink.visibility import VisibleRows

DONE, REFUSED, UNKNOWN, NOT_ASKED = CommitOutcome


def record(count: int) -> CommitRecord:
    rows = {
        "partition": [at % 2 for at in range(count)], "row": list(range(count)),
        "topic": ["orders"] * count, "broker": ["broker-a"] * count,
        "queue_id": [at % 4 for at in range(count)], "half_offset": list(range(count)),
        "position": [100 * at for at in range(count)],
        "unique_key": [f"U{at}" for at in range(count)], "ordered": [False] * count,
    }  # fmt: skip
    ends = {"orders": {"broker-a": {"0": 0}}}
    return CommitRecord("q", 1, "g", ("a:1",), ends, pa.Table.from_pydict(rows, SCHEMA))


class ScriptedBroker:
    """A broker with a script: how it answers each commit, and whether it carries it out."""

    def __init__(self, script: Sequence[str] = ()) -> None:
        self.script = iter(script)
        self.visible: list[int] = []
        self.discarded: set[int] = set()
        self.late: list[int] = []
        self.commits: list[tuple[int, bool]] = []
        self.pauses: list[int] = []

    def end(self, halves: Sequence[HalfMessageRef]) -> dict[int, CommitOutcome]:
        return {half.number: self._end(half) for half in halves}

    def _end(self, half: HalfMessageRef) -> CommitOutcome:
        self.commits.append((half.number, half.is_discarded))
        step = next(self.script, "done")
        if step == "refused" and not half.is_discarded:
            self.discarded.add(half.number)
            return REFUSED
        if step in ("done", "lost", "slow"):
            # An Apache broker commits again when it is asked again.
            (self.late if step == "slow" else self.visible).append(half.number)
        return DONE if step == "done" else NOT_ASKED if step == "not asked" else UNKNOWN

    def since(self, ends: OffsetsJson, prefix: str) -> VisibleRows:
        assert prefix == "q/1/"
        codes = [self._code(number) for number in self.visible]
        discarded = [self._code(number) for number in self.discarded]
        return VisibleRows(np.array(codes, np.int64), np.array(discarded, np.int64), ends)

    def pause(self, pause_ms: int) -> None:
        self.pauses.append(pause_ms)
        self.visible += self.late
        self.late = []

    def _code(self, number: int) -> int:
        return (number % 2) << PARTITION_SHIFT | number

    def finisher(self, timeout_ms: int = 60_000) -> BatchFinisher:
        return BatchFinisher(self.end, self, self.pause, timeout_ms)


def test_a_fresh_batch_is_committed_without_a_wait() -> None:
    broker = ScriptedBroker()
    broker.finisher().finish(record(5), fresh=True)
    assert broker.visible == [0, 1, 2, 3, 4]
    assert broker.pauses == []


def test_after_a_kill_only_invisible_rows_are_committed() -> None:
    broker = ScriptedBroker()
    broker.visible = [0, 3]
    broker.finisher().finish(record(5), fresh=False)
    assert [number for number, _ in broker.commits] == [1, 2, 4]
    assert sorted(broker.visible) == [0, 1, 2, 3, 4]
    assert len(broker.pauses) == 1


def test_rows_of_discarded_half_messages_are_sent_again() -> None:
    broker = ScriptedBroker()
    broker.discarded = {1}
    broker.finisher().finish(record(3), fresh=False)
    assert broker.commits == [(0, False), (1, True), (2, False)]


script = st.lists(st.sampled_from(["done", "lost", "slow", "nothing", "refused", "not asked"]))


@given(st.integers(0, 12), script, st.booleans(), st.sets(st.integers(0, 11)))
def test_whatever_happens_each_row_is_there_once(
    count: int, given_script: list[str], fresh: bool, seen: set[int]
) -> None:
    broker = ScriptedBroker(given_script)
    if not fresh:
        broker.visible = sorted(number for number in seen if number < count)
    broker.finisher().finish(record(count), fresh=fresh)
    assert sorted(broker.visible + broker.late) == list(range(count))


def test_a_batch_that_makes_no_progress_is_an_error() -> None:
    broker = ScriptedBroker(["nothing"] * 100)
    with pytest.raises(CallTimeout, match="2 rows of batch 1 could not be made visible"):
        broker.finisher(timeout_ms=-1).finish(record(2), fresh=True)


def test_halves_are_values_of_their_table() -> None:
    (half,) = refs_at(record(3).halves, [2], [True])
    assert half == HalfMessageRef(2, "orders", "broker-a", 2, 2, 200, "U2", False, True)
