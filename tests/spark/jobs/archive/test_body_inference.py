"""Inference: the fields of a sample, with a type that all its values have."""

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.lake.columns.body_columns import FIELDS_MAX, BodyField
from roquet.lake.queue_offsets import OffsetRange, ranges
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.archive import body_inference
from roquet.spark.jobs.archive.body_inference import (
    PARTS_MAX,
    infer_fields,
    last_ranges,
    sample_bodies,
)
from roquet.spark.options import SourceOptions
from roquet.spark.source.tasks import plan_tasks

if TYPE_CHECKING:
    from tests.spark.jobs.conftest import Topic


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
    topic: "Topic", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_inference, "SAMPLE_MAX", 8)
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
