"""Query listeners: lag and rate by topic, and a group's progress."""

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from roquet.spark import listener, queue_offsets
from roquet.spark.listener import (
    ProgressListener,
    PublishListener,
    QueryProgress,
    end_offsets,
    parse_progress,
)

END = {"orders": {"a": {"0": 5, "1": 7}}, "paid": {"a": {"0": 1}}}
LATEST = {"orders": {"a": {"0": 9, "1": 7}, "b": {"0": 2}}, "paid": {"a": {"0": 1}}}


def told(**changes: Any) -> dict[str, Any]:
    """A query's progress, as far as it is looked at."""
    source = {
        "endOffset": END,
        "latestOffset": LATEST,
        "numInputRows": 1200,
        "processedRowsPerSecond": 300.5,
    }
    source.update(changes)
    return {"id": "8f3a", "name": "lake", "batchId": 4, "sources": [source]}


def event(progress: Any) -> Any:
    """An event as Spark passes it to a listener."""
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress)))


class RecordingPublisher:
    """Stands in for `ProgressPublisher`."""

    def __init__(self) -> None:
        self.published: list[Any] = []

    def publish(self, offsets: Any) -> None:
        self.published.append(queue_offsets.to_json(offsets))


def test_lag_is_by_topic_and_counts_queues_that_are_not_begun() -> None:
    (one,) = parse_progress(told())
    assert one.lag == {"orders": 4 + 2, "paid": 0}
    assert (one.query, one.batch, one.rows, one.rows_per_second) == ("lake", 4, 1200, 300.5)
    assert str(one) == "lake batch 4: 1,200 rows, 300/s, lag orders 6, paid 0"


def test_brokers_that_are_away_are_named() -> None:
    (one,) = parse_progress(
        told(latestOffset=queue_offsets.latest_to_json(queue_offsets.from_json(LATEST), {"b": 12}))
    )
    assert one.away == {"b": 12}
    assert str(one).endswith("; away: b for 12 s")
    assert one.lag == {"orders": 6, "paid": 0}


def test_offsets_come_as_json_or_as_what_it_says() -> None:
    assert end_offsets({"endOffset": json.dumps(END)}) == queue_offsets.from_json(END)
    assert end_offsets({"endOffset": END}) == queue_offsets.from_json(END)


@pytest.mark.parametrize("end", [None, 7, "8", "{", [1], {"files": 3}, {"logOffset": {"a": 1}}])
def test_other_sources_are_passed_over(end: Any) -> None:
    assert parse_progress(told(endOffset=end)) == []


def test_a_rate_that_is_not_told_is_none() -> None:
    (one,) = parse_progress(told(processedRowsPerSecond="NaN", latestOffset=None))
    assert (one.rows_per_second, one.lag) == (0.0, {"orders": 0, "paid": 0})


def test_each_batch_is_told_to_whoever_wants_to_hear() -> None:
    heard: list[QueryProgress] = []
    ProgressListener(heard.append).onQueryProgress(event(told()))
    assert heard == parse_progress(told())


def test_by_itself_it_writes_a_line_that_warns_while_brokers_are_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    ProgressListener().onQueryProgress(event(told()))
    away = queue_offsets.latest_to_json(queue_offsets.from_json(LATEST), {"b": 12})
    ProgressListener().onQueryProgress(event(told(latestOffset=away)))
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]


def test_what_goes_wrong_in_a_listener_leaves_the_query_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(_: QueryProgress) -> None:
        raise RuntimeError("the dashboard is down")

    ProgressListener(fails).onQueryProgress(event(told()))
    assert "the dashboard is down" in caplog.text


@pytest.mark.parametrize(
    ("query", "is_meant"), [(None, True), ("lake", True), ("8f3a", True), ("other", False)]
)
def test_ends_of_the_query_that_is_meant_are_published(query: str | None, is_meant: bool) -> None:
    publisher: Any = RecordingPublisher()
    PublishListener(publisher, query).onQueryProgress(event(told()))
    assert publisher.published == ([END] if is_meant else [])


def test_a_session_gets_the_listener_once_the_group_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Session:
        def __init__(self) -> None:
            self.streams, self.added = self, list[Any]()

        def addListener(self, one: Any) -> None:  # noqa: N802
            self.added.append(one)

    class Checked(RecordingPublisher):
        def __init__(self, settings: Any, group: str) -> None:
            super().__init__()
            self.asked: tuple[Any, ...] = (settings.namesrv, settings.topics, group)

        def check(self) -> None:
            self.asked += ("checked",)

    monkeypatch.setattr(listener, "ProgressPublisher", Checked)
    session: Any = Session()
    added: Any = listener.publish(session, group="lake", namesrv="n:1", topic="orders")
    assert session.added == [added]
    assert added._publisher.asked == (("n:1",), ("orders",), "lake", "checked")
