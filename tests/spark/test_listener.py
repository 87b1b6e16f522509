"""Query listeners: lag and rate by topic, and a group's progress."""

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from roquet.lake import queue_offsets
from roquet.spark import listener
from roquet.spark.listener import (
    ProgressListener,
    PublishListener,
    QueryProgress,
    end_offsets,
    parse_progress,
)
from roquet.spark.options import SourceOptions

END = {"orders": {"a": {"0": 5, "1": 7}}, "paid": {"a": {"0": 1}}}
LATEST = {"orders": {"a": {"0": 9, "1": 7}, "b": {"0": 2}}, "paid": {"a": {"0": 1}}}


def progress_fields(**changes: Any) -> dict[str, Any]:
    """A query's progress, as far as it is looked at."""
    source = {
        "endOffset": END,
        "latestOffset": LATEST,
        "numInputRows": 1200,
        "processedRowsPerSecond": 300.5,
    }
    source.update(changes)
    return {"id": "8f3a", "name": "lake", "batchId": 4, "sources": [source]}


def event(progress: object) -> Any:
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress)))


class RecordingPublisher:
    def __init__(self) -> None:
        self.published: list[Any] = []

    def publish(self, offsets: queue_offsets.QueueOffsets) -> None:
        self.published.append(queue_offsets.to_json(offsets))


def test_lag_is_by_topic_and_counts_queues_that_are_not_begun() -> None:
    (one,) = parse_progress(progress_fields())
    assert one.lag == {"orders": 4 + 2, "paid": 0}
    assert (one.query, one.batch, one.rows, one.rows_per_second) == ("lake", 4, 1200, 300.5)
    assert str(one) == "lake batch 4: 1,200 rows, 300/s, lag orders 6, paid 0"


def test_brokers_that_are_away_are_named() -> None:
    (one,) = parse_progress(
        progress_fields(
            latestOffset=queue_offsets.latest_to_json(queue_offsets.from_json(LATEST), {"b": 12})
        )
    )
    assert one.away == {"b": 12}
    assert str(one).endswith("; away: b for 12 s")
    assert one.lag == {"orders": 6, "paid": 0}


def test_offsets_come_as_json_text_or_parsed() -> None:
    assert end_offsets({"endOffset": json.dumps(END)}) == queue_offsets.from_json(END)
    assert end_offsets({"endOffset": END}) == queue_offsets.from_json(END)


@pytest.mark.parametrize("end", [None, 7, "8", "{", [1], {"files": 3}, {"logOffset": {"a": 1}}])
def test_other_sources_are_ignored(end: object) -> None:
    assert parse_progress(progress_fields(endOffset=end)) == []


def test_a_missing_rate_is_zero() -> None:
    (one,) = parse_progress(progress_fields(processedRowsPerSecond="NaN", latestOffset=None))
    assert (one.rows_per_second, one.lag) == (0.0, {"orders": 0, "paid": 0})


def test_each_batch_is_passed_to_the_callback() -> None:
    heard: list[QueryProgress] = []
    ProgressListener(heard.append).onQueryProgress(event(progress_fields()))
    assert heard == parse_progress(progress_fields())


def test_by_default_a_line_is_logged_that_warns_while_brokers_are_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    ProgressListener().onQueryProgress(event(progress_fields()))
    away = queue_offsets.latest_to_json(queue_offsets.from_json(LATEST), {"b": 12})
    ProgressListener().onQueryProgress(event(progress_fields(latestOffset=away)))
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]


def test_an_error_in_a_listener_does_not_stop_the_query(caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: QueryProgress) -> None:
        raise RuntimeError("the dashboard is down")

    ProgressListener(fails).onQueryProgress(event(progress_fields()))
    assert "the dashboard is down" in caplog.text


@pytest.mark.parametrize(
    ("query", "is_meant"), [(None, True), ("lake", True), ("8f3a", True), ("other", False)]
)
def test_end_offsets_of_the_named_query_are_published(query: str | None, is_meant: bool) -> None:
    publisher: Any = RecordingPublisher()
    PublishListener(publisher, query).onQueryProgress(event(progress_fields()))
    assert publisher.published == ([END] if is_meant else [])


def test_a_session_gets_the_listener_once_the_group_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Session:
        def __init__(self) -> None:
            self.streams, self.added = self, list[Any]()

        def addListener(self, one: object) -> None:  # noqa: N802
            self.added.append(one)

    class CheckedPublisher(RecordingPublisher):
        def __init__(self, settings: SourceOptions, group: str) -> None:
            super().__init__()
            self.settings, self.group, self.is_checked = settings, group, False
            publishers.append(self)

        def check(self) -> None:
            self.is_checked = True

    publishers: list[CheckedPublisher] = []
    monkeypatch.setattr(listener, "ProgressPublisher", CheckedPublisher)
    session: Any = Session()
    added = listener.publish(session, group="lake", namesrv="n:1", topic="orders")
    assert session.added == [added]
    (publisher,) = publishers
    settings = publisher.settings
    assert (settings.namesrv, settings.topics) == (("n:1",), ("orders",))
    assert (publisher.group, publisher.is_checked) == ("lake", True)
