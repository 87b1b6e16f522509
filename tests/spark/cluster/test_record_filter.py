"""Record filter: an expression for brokers, and a check of tags as text."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.arrow.records import RecordColumns
from roquet.spark.cluster.record_filter import Deduplicator, RecordFilter
from roquet.spark.options import SourceOptions
from roquet.wire.java_hash import hash_code
from roquet.wire.records import record

HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def packed(at: int, **properties: str) -> bytes:
    text = record.encode_properties(properties)
    return record.pack(0, 0, at, at, 0, 1, HOST, 2, HOST, 0, 0, b"", b"orders", text)


def selection(tags: tuple[str, ...] | None = None, sql92: str | None = None) -> RecordFilter:
    return RecordFilter(SourceOptions(namesrv=("a:1",), topics=("orders",), tags=tags, sql92=sql92))


@pytest.mark.parametrize(
    ("record_filter", "expression", "takes_all"),
    [
        (selection(), ("*", "TAG"), True),
        (selection(tags=("a", "b")), ("a || b", "TAG"), False),
        (selection(sql92="n > 1"), ("n > 1", "SQL92"), False),
    ],
)
def test_a_filter_is_an_expression_for_the_broker(
    record_filter: RecordFilter, expression: tuple[str, str], takes_all: bool
) -> None:
    assert record_filter.expression == expression
    assert record_filter.takes_all is takes_all


def test_a_tag_with_the_same_hash_is_left_out() -> None:
    assert hash_code("AaAa") == hash_code("BBBB")
    records = RecordColumns.of(packed(0, TAGS="AaAa") + packed(1, TAGS="BBBB") + packed(2))
    assert selection(tags=("AaAa",)).apply(records).queue_offsets.tolist() == [0]
    assert selection(tags=("AaAa", "BBBB")).apply(records).queue_offsets.tolist() == [0, 1]
    assert selection().apply(records) is records
    assert selection(sql92="n > 1").apply(records) is records, "brokers have looked to the end"


def test_where_all_are_wanted_nothing_is_copied() -> None:
    records = RecordColumns.of(packed(0, TAGS="a") + packed(1, TAGS="a"))
    assert selection(tags=("a",)).apply(records) is records
    nothing = RecordColumns.of(b"")
    assert selection(tags=("a",)).apply(nothing) is nothing


def test_the_first_of_duplicates_is_kept() -> None:
    rows = ("q/1/0/5", "q/1/0/6", "q/1/0/5", "q/2/0/5")
    first = RecordColumns.of(b"".join(packed(at, ROQUET_ROW=row) for at, row in enumerate(rows)))
    then = RecordColumns.of(
        packed(4, ROQUET_ROW="q/1/0/6") + packed(5) + packed(6, ROQUET_ROW="other")
    )
    settings = SourceOptions(namesrv=("a:1",), topics=("orders",), drop_doubles=True)
    record_filter = RecordFilter(settings)
    assert record_filter.takes_all, "a double that is left out is there, so what is missing is lost"
    assert record_filter.apply(first).queue_offsets.tolist() == [0, 1, 3]
    assert record_filter.apply(then).queue_offsets.tolist() == [5, 6]


key = st.builds(
    "{}/{}/{}/{}".format,
    st.sampled_from(["q", "other/with/slashes"]),
    st.integers(0, 3),
    st.integers(0, 2),
    st.integers(0, 40),
)


@given(st.lists(st.lists(st.one_of(st.none(), key), max_size=20), max_size=5))
def test_each_key_is_kept_once_and_rows_without_a_key_always(
    batches: list[list[str | None]],
) -> None:
    deduplicator, met = Deduplicator(), set[str]()
    for batch in batches:
        kept = deduplicator.first_occurrences(pa.array(batch, pa.string())).tolist()
        for name, is_kept in zip(batch, kept, strict=True):
            assert is_kept == (name is None or name not in met)
            if name is not None:
                met.add(name)
    assert deduplicator.dropped == sum(
        name is not None for batch in batches for name in batch
    ) - len(met)


def test_keys_of_another_form_are_kept() -> None:
    odd = ["", "a/b/c/d", "q/1/2", "q/1/2/-3", f"q/1/2/{10**18}", "q/1/2/"]
    for _ in range(2):
        assert Deduplicator().first_occurrences(pa.array(odd * 2)).all()


def test_the_property_of_a_replay_is_a_key_in_any_queue() -> None:
    deduplicator = Deduplicator()
    keys = [f"orders/broker-a/0/{offset}" for offset in (7, 2**31, 7, 10**17, 2**31)]
    assert deduplicator.first_occurrences(pa.array(keys)).tolist() == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert deduplicator.first_occurrences(pa.array([keys[3], "orders/broker-b/0/7"])).tolist() == [
        False,
        True,
    ]
    assert deduplicator.bytes_used < 2**20, "far offsets take no more room than near ones"


def test_a_batch_that_was_forgotten_gives_its_messages_again() -> None:
    deduplicator = Deduplicator(batches_max=2)
    for batch in range(4):
        assert deduplicator.first_occurrences(pa.array([f"q/{batch}/0/7"])).tolist() == [True]
    assert deduplicator.first_occurrences(pa.array(["q/3/0/7", "q/0/0/7"])).tolist() == [
        False,
        True,
    ]


def test_memory_is_bounded_by_bits() -> None:
    deduplicator = Deduplicator(bytes_max=10_000)
    for batch in range(50):
        deduplicator.first_occurrences(pa.array([f"q/{batch}/0/{row}" for row in (0, 20_000)]))
        assert deduplicator.bytes_used <= 10_000
    assert deduplicator.first_occurrences(pa.array(["q/49/0/20000"])).tolist() == [False]
