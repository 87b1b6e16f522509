"""Body columns of a run: from a schema, from a sample, from the table; a bad body stops nothing."""

import json
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from tests.spark.conftest import send_columns
from tests.spark.jobs.conftest import MakeSpark, Topic

from roquet.lake.arrow_dataset import arrow_dataset
from roquet.lake.columns.body_columns import FIELDS_MAX, BodyField
from roquet.lake.columns.body_schemas import BodySchema
from roquet.lake.maintain import maintenance
from roquet.lake.maintain.refill import RefillCounts
from roquet.lake.queue_offsets import OffsetRange, ranges
from roquet.model.errors import ConfigError
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.archive import archive_columns
from roquet.spark.jobs.archive.archive_columns import (
    PARTS_MAX,
    infer_fields,
    last_ranges,
    sample_bodies,
)
from roquet.spark.jobs.archive.archive_job import ArchiveProgress, Params, run
from roquet.spark.options import SourceOptions
from roquet.spark.source.tasks import plan_tasks

FLIGHTS = (b'{"carrier": "AA", "delay": 3}', b'{"carrier": "UA", "delay": 1.5}')


class JsonArchive:
    def __init__(self, topic: Topic, eager: MakeSpark, kind: str, root: Path) -> None:
        self.topic, self.eager, self.kind, self.root = topic, eager, kind, root

    def send(self, *bodies: bytes) -> None:
        send_columns(
            self.topic.addresses["broker-a"], "orders", 0, body=pa.array(bodies, pa.binary())
        )

    def run(self, **params: Any) -> int:
        return self.done(**params).rows

    def done(self, **params: Any) -> ArchiveProgress:
        options = {"namesrv": self.topic.namesrv, "timeout": "2s"}
        arguments = {"topic": "orders", "target": str(self.root), "options": options, **params}
        return run(Params(kind=self.kind, **arguments), self.eager)

    def maintain(self, **params: Any) -> RefillCounts:
        name = "roquet.orders" * (self.kind == "iceberg")
        arguments = {"target": str(self.root), "name": name, "refill": ("crew",), **params}
        return maintenance.run(maintenance.Params(**arguments), maintenance.run_here, 0).refilled

    def rows(self, names: Iterable[str]) -> list[tuple[Any, ...]]:
        """The values of these columns as other readers see them, in the order of the offsets."""
        if self.kind == "delta":
            table = DeltaTable(str(self.root)).to_pyarrow_table()
        else:
            with closing(SqlCatalog("roquet", uri=f"sqlite:///{self.root}/catalog.db")) as lake:
                table = lake.load_table("roquet.orders").scan().to_arrow()
        rows = table.sort_by("queue_offset").to_pylist()
        return [tuple(row[name] for name in names) for row in rows]


@pytest.fixture(params=["delta", "iceberg"])
def flights(
    request: pytest.FixtureRequest, topic: Topic, eager: MakeSpark, tmp_path: Path
) -> JsonArchive:
    return JsonArchive(topic, eager, request.param, tmp_path / "lake")


def test_a_field_that_the_schema_gains_is_a_column_of_the_table(flights: JsonArchive) -> None:
    flights.send(*FLIGHTS)
    assert flights.run(body_format="json", body_schema="delay double") == 2
    assert flights.rows(["delay", "body", "body_error"]) == [
        (3.0, FLIGHTS[0], None), (1.5, FLIGHTS[1], None)
    ]  # fmt: skip
    flights.send(FLIGHTS[0])
    assert flights.run(body_schema="delay double, carrier string") == 1
    flights.send(FLIGHTS[1])
    assert flights.run() == 1, "the table remembers both"
    expected = [(3.0, None), (1.5, None), (3.0, "AA"), (1.5, "UA")]
    assert flights.rows(["delay", "carrier"]) == expected
    assert flights.run(compact=True) == 0
    assert flights.rows(["delay", "carrier"]) == expected, "also after a merge of older files"
    with pytest.raises(ConfigError, match="the column delay double, which cannot become delay st"):
        flights.run(body_schema="delay string")


def test_bad_bodies_are_kept_with_their_reason(flights: JsonArchive) -> None:
    flights.send(FLIGHTS[0], b"no json", b'{"delay": "late"}', FLIGHTS[1])
    assert flights.run(body_format="json", body_schema="delay double") == 4
    rows = flights.rows(["delay", "body", "body_error"])
    assert [row[0] for row in rows] == [3.0, None, None, 1.5]
    assert [row[1] for row in rows] == [FLIGHTS[0], b"no json", b'{"delay": "late"}', FLIGHTS[1]]
    assert rows[0][2] is rows[3][2] is None
    assert "malformed" in rows[1][2]
    assert "$.delay" in rows[2][2]


def test_fields_are_inferred_from_what_comes(flights: JsonArchive) -> None:
    flights.send(*FLIGHTS)
    assert flights.run(body_format="json", infer_body=True) == 2
    flights.send(b'{"carrier": "DL", "delay": 9, "tail": {"id": 1}}')
    assert flights.run(infer_body=True) == 1
    flights.send(b'{"carrier": "DL", "gate": 5}')
    assert flights.run() == 1, "the table remembers --infer"
    assert flights.rows(["carrier", "delay", "tail", "gate"]) == [
        ("AA", 3.0, None, None), ("UA", 1.5, None, None), ("DL", 9.0, {"id": 1}, None),
        ("DL", None, None, 5),
    ]  # fmt: skip


def test_a_run_says_what_it_added_and_what_it_could_not_parse(flights: JsonArchive) -> None:
    flights.send(*FLIGHTS, b"no json")
    done = flights.done(body_format="json", body_schema="carrier string")
    assert (done.new_columns, done.bad_bodies, done.kind) == (["carrier string"], 1, flights.kind)
    flights.send(b'{"carrier": "DL", "gate": 5}')
    done = flights.done(infer_body=True)
    assert (done.new_columns, done.bad_bodies) == (["gate bigint"], 0)


def avro_source(*fields: dict[str, Any]) -> BodySchema:
    schema = {"type": "record", "name": "Flight", "fields": [*fields]}
    return BodySchema(format="avro", text=json.dumps(schema))


def test_avro_bodies_become_columns_by_a_schema_that_the_table_keeps(flights: JsonArchive) -> None:
    """Bodies are written by hand: a text is its length and its letters, a number is zigzag."""
    pytest.importorskip("fastavro", reason="pip install 'roquet[avro]'")
    carrier, delay = {"name": "carrier", "type": "string"}, {"name": "delay", "type": "int"}
    flights.send(b"\x04AA\x06", b"no record")
    source = avro_source(carrier, delay)
    done = flights.done(body_format="avro", body_source=source, body_schema="carrier string")
    assert (done.new_columns, done.bad_bodies) == (["carrier string"], 1)
    flights.send(b"\x04UA\x03")
    assert flights.run() == 1, "the table remembers the schema"
    assert flights.rows(["carrier"]) == [("AA",), (None,), ("UA",)]
    assert flights.done(body_source=source).new_columns == ["delay int"]
    assert flights.maintain(refill=("delay",), is_preview=False).filled == 2
    assert flights.rows(["delay"]) == [(3,), (None,), (-2,)]
    with pytest.raises(ConfigError, match="--infer is for JSON"):
        flights.done(infer_body=True)


def test_a_table_that_was_made_without_infer_does_so_for_one_run(flights: JsonArchive) -> None:
    flights.send(*FLIGHTS)
    assert flights.run(body_format="json", body_schema="carrier string") == 2
    flights.send(b'{"carrier": "DL", "gate": 5}')
    assert flights.run(infer_body=True) == 1
    flights.send(b'{"carrier": "DL", "crew": 5}')
    assert flights.run() == 1, "without --infer nothing is added"
    assert flights.rows(["gate"]) == [(None,), (None,), (5,), (None,)]
    with pytest.raises(KeyError):
        flights.rows(["crew"])


def test_fields_without_a_column_are_counted_and_nothing_is_lost_in_silence(
    flights: JsonArchive,
) -> None:
    flights.send(*FLIGHTS, b'{"crew": 5, "day": 3, "topic": "x"}')
    done = flights.done(body_format="json", body_schema="delay double")
    assert done.unknown_fields == {"carrier": 2, "crew": 1, "day": 1, "topic": 1}
    flights.send(b'{"crew": 6, "day": 3}')
    assert flights.done(infer_body=True).unknown_fields == {"day": 1}, "no column can have its name"


def test_a_field_that_the_last_bodies_have_is_found(
    flights: JsonArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_columns, "SAMPLE_MAX", 2)
    flights.send(*[FLIGHTS[0]] * 5, b'{"crew": 5}')
    assert flights.done(body_format="json", infer_body=True).unknown_fields == {}
    assert flights.rows(["crew"]) == [(None,)] * 5 + [(5,)]


def test_a_field_may_have_a_column_of_another_name(flights: JsonArchive) -> None:
    flights.send(b'{"day": 3, "key": "a", "flight-no": 7}')
    schema = "flight_day=day int, no=flight-no int"
    flights.run(body_format="json", body_schema=schema)
    flights.send(b'{"day": 4, "key": "b"}')
    done = flights.done(infer_body=True, body_prefix="b_", body_schema="key string")
    assert done.unknown_fields == {}
    flights.send(b'{"day": 5, "key": "c", "flight-no": 8}')
    assert flights.done(compact=True).unknown_fields == {}, "the table remembers"
    assert flights.rows(["flight_day", "b_key", "no"]) == [
        (3, None, 7), (4, "b", None), (5, "c", 8)
    ]  # fmt: skip


def test_dates_times_arrays_and_objects_have_types(flights: JsonArchive) -> None:
    flights.send(
        b'{"on": "2026-01-31", "at": "2026-01-31T12:00:00+02:00", "stops": ["ORD", "DEN"],'
        b' "legs": [{"from": "SFO", "miles": 5}, {"miles": 6}], "tail": {"id": 7, "built": null}}'
    )
    assert flights.done(body_format="json", infer_body=True).unknown_fields == {}
    flights.send(
        b'{"legs": [{"crew": 1, "miles": 8}, {"crew": 2}], "tail": {"id": 8, "built": "2001"}}',
        b'{"tail": {"id": "x"}}',
        b'{"legs": [], "stops": null}',
    )
    done = flights.done(compact=True)
    assert done.unknown_fields == {"legs.crew": 1, "tail.built": 1}
    legs = [{"from": "SFO", "miles": 5}, {"from": None, "miles": 6}]
    later = [{"from": None, "miles": 8}, {"from": None, "miles": None}]
    # pyiceberg 0.12 reads a missing array as an empty one.
    rows = arrow_dataset(str(flights.root)).to_table().sort_by("queue_offset").to_pylist()
    assert [(row["on"], row["stops"], row["legs"], row["tail"]) for row in rows] == [
        (date(2026, 1, 31), ["ORD", "DEN"], legs, {"id": 7}),
        (None, None, later, {"id": 8}),
        (None, None, None, None),
        (None, None, [], None),
    ]
    [at, *_] = flights.rows(["at", "body_error"])
    assert at == (datetime(2026, 1, 31, 10, tzinfo=UTC), None)
    assert "tail" in flights.rows(["body_error"])[2][0]


def test_a_topic_without_messages_has_no_fields_yet(flights: JsonArchive) -> None:
    assert flights.run(body_format="json", infer_body=True) == 0
    flights.send(*FLIGHTS)
    assert flights.run(infer_body=True) == 2
    assert flights.rows(["carrier"]) == [("AA",), ("UA",)]


def test_a_column_is_filled_for_older_rows_from_their_bodies(flights: JsonArchive) -> None:
    bodies = (b'{"crew": 5, "delay": 1}', b'{"delay": 2}', b'{"crew": "x"}', b"no JSON")
    flights.send(*bodies)
    flights.run(body_format="json", body_schema="delay double")
    flights.send(b'{"crew": 6}')
    flights.run(body_schema="crew int")
    before = flights.rows(["queue_offset", "delay", "body", "body_error"])
    preview = flights.maintain()
    assert (preview.files, preview.filled, preview.unfit) == (1, 1, 1)
    assert flights.rows(["crew"]) == [(None,)] * 4 + [(6,)], "nothing was done"
    assert flights.maintain(is_preview=False).filled == 1
    assert flights.rows(["crew"]) == [(5,), (None,), (None,), (None,), (6,)]
    assert flights.rows(["queue_offset", "delay", "body", "body_error"]) == before
    assert flights.maintain(is_preview=False).filled == 0
    flights.send(b'{"crew": 7}')
    assert flights.run() == 1, "the archive goes on where it was"
    assert flights.rows(["crew"])[4:] == [(6,), (7,)]
    with pytest.raises(ConfigError, match=r"--refill crw: .* did you mean 'crew'"):
        flights.maintain(refill=("crw",))


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"body_format": "json"}, "needs the fields: --body-schema 'id bigint, name string', or"),
        ({"body_schema": "a int"}, "are for tables made with --body-format json"),
        ({"infer_body": True}, "are for tables made with --body-format json"),
        ({"body_format": "avro"}, "say --avro FILE, with the schema"),
        ({"body_format": "json", "infer_body": True, "body_prefix": "b-"}, "--body-prefix 'b-'"),
        (
            {
                "body_format": "json",
                "body_schema": "a int",
                "columns": ("broker", "queue_id", "queue_offset", "stored_at"),
            },
            "needs the column 'body'",
        ),
    ],
)
def test_what_cannot_be_is_a_sentence(
    topic: Topic, eager: MakeSpark, tmp_path: Path, params: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        JsonArchive(topic, eager, "delta", tmp_path / "lake").run(**params)


def inferred(*bodies: bytes) -> dict[str, str]:
    return {field.name: field.type for field in infer_fields(bodies)}


def test_types_are_those_of_the_values() -> None:
    body = b'{"id": 7, "price": 1.5, "paid": true, "name": "x", "tags": ["a"], "big": 1e400}'
    assert inferred(body.replace(b', "big": 1e400', b', "big": 99999999999999999999')) == {
        "id": "bigint",
        "price": "double",
        "paid": "boolean",
        "name": "string",
        "tags": "array<string>",
        "big": "string",
    }


def test_values_of_different_types_share_a_wider_one() -> None:
    assert inferred(b'{"a": 1, "b": 1}', b'{"a": 1.5, "b": "x"}') == {"a": "double", "b": "string"}
    assert inferred(b'{"a": null}', b'{"a": true}') == {"a": "boolean"}
    assert inferred(b'{"a": true}', b'{"a": 1}') == {"a": "string"}
    assert inferred(b'{"a": null}') == {}, "nothing is known yet"


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["2026-01-31", "1969-12-31"], "date"),
        (["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123+05:30"], "timestamp"),
        (["2026-01-31T12:00:00"], "string"),
        (["2026-01-31", "2026-01-31T12:00:00Z"], "string"),
        (["2026-02-30"], "string"),
        (["2026-01-31", ""], "string"),
        (["20260131"], "string"),
        (["2026-01-31T25:00:00Z"], "string"),
    ],
)
def test_texts_are_times_if_all_are(texts: list[str], kind: str) -> None:
    assert inferred(*(b'{"a": "%b"}' % text.encode() for text in texts)) == {"a": kind}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([b"[]"], None),
        ([b"{}"], None),
        ([b"[null]", b"[1]", b"[1.5]"], "array<double>"),
        ([b'[1, "x"]'], "array<string>"),
        ([b'{"b": 1}', b'{"c": [{"d": true}]}'], "struct<b:bigint,c:array<struct<d:boolean>>>"),
        ([b'{"b": 1}', b"[1]"], "string"),
        ([b'{"b": null}'], None),
        ([b'{"order-1": 1}'], "string"),
        ([b'{"b": 1, "B": 2}'], "string"),
        ([b"[" * 900 + b"1" + b"]" * 900], "array<array<array<array<string>>>>"),
    ],
    ids=str,
)
def test_arrays_and_objects_have_parts(values: list[bytes], kind: str | None) -> None:
    expected = {} if kind is None else {"a": kind}
    assert inferred(*(b'{"a": %b}' % value for value in values)) == expected
    assert inferred(*(b'{"a": %b}' % value for value in reversed(values))).keys() == expected.keys()


def test_an_object_of_very_many_names_is_text() -> None:
    body = msgspec.json.encode({"a": {f"b{at}": at for at in range(PARTS_MAX + 1)}})
    assert inferred(body) == {"a": "string"}


def test_known_fields_and_names_that_no_column_can_have_are_left_out() -> None:
    known = [BodyField("ID", "string")]
    body = b'{"id": 1, "key": 2, "user-id": 3, "Ok": 4, "ok": 5}'
    assert infer_fields([body], known) == [BodyField("Ok", "bigint")]


def test_columns_have_a_prefix_and_a_field_has_one_column() -> None:
    body = b'{"day": 1, "topic": "x", "id": 2, "9": 1, "gate": 3, "b_key": 4}'
    known = [BodyField("ident", "bigint", "id"), BodyField("b_gate", "bigint", "gate")]
    assert infer_fields([body], known, "b_") == [
        BodyField("b_day", "bigint", "day"),
        BodyField("b_topic", "string", "topic"),
        BodyField("b_9", "bigint", "9"),
        BodyField("b_b_key", "bigint", "b_key"),
    ]


def test_bodies_that_are_no_objects_are_passed_over() -> None:
    assert inferred(b"", b"no", b"[1]", b"7", b"[" * 100_000, b'{"a": 1}') == {"a": "bigint"}


def test_a_table_of_many_fields_takes_no_more() -> None:
    body = msgspec.json.encode({f"f{at}": 1 for at in range(10_000)})
    known = [BodyField(f"k{at}", "int") for at in range(FIELDS_MAX - 3)]
    assert len(infer_fields([body], known)) == 3


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers() | st.floats() | st.text())))
def test_the_order_of_the_bodies_does_not_matter(values: list[dict[str, object]]) -> None:
    bodies = [msgspec.json.encode(value) for value in values]
    assert inferred(*bodies) == inferred(*reversed(bodies))


def test_a_sample_has_bodies_of_all_tasks_and_ends_early(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_columns, "SAMPLE_MAX", 8)
    topic.send(50)
    settings = SourceOptions(
        namesrv=(topic.namesrv,), topics=("orders",), min_partitions=4, max_partitions=4
    )
    cluster = ClusterClient(settings)
    tasks = plan_tasks(settings, ranges(cluster.earliest(), cluster.latest()), cluster.addresses)
    bodies = list(sample_bodies(settings, tasks))
    queues = ("broker-a/0", "broker-a/1", "broker-b/0", "broker-b/1")
    assert sorted(bodies) == [b"%b/%b" % (q.encode(), n) for q in queues for n in (b"0", b"49")]
    assert list(sample_bodies(settings, [])) == []


def test_the_ends_of_a_task_are_those_of_all_its_queues() -> None:
    ranges = [OffsetRange("t", "b", queue, 10, 10 + rows) for queue, rows in enumerate((90, 1, 0))]
    assert [(each.start, each.end) for each in last_ranges(ranges, 30)] == [(90, 100), (10, 11)]
    assert last_ranges([], 30) == []
