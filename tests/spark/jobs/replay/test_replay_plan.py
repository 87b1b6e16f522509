"""A preview says what a replay would send, and sends nothing."""

from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from tests.spark.jobs.conftest import ArchivedTopic, MakeSpark

from roquet.model.errors import ConfigError
from roquet.spark.jobs.replay import replay_job
from roquet.spark.jobs.replay.replay_plan import Params, destination_options, preview


def params_of(lake: ArchivedTopic, **params: Any) -> Params:
    options = {"namesrv": lake.topic.namesrv, "timeout": "5s"}
    return Params(**{"source": str(lake.root), "topic": lake.again, "options": options, **params})


def test_a_preview_counts_rows_and_bytes_by_queue(
    archived_topic: ArchivedTopic, eager: MakeSpark
) -> None:
    lake = archived_topic
    lake.send_and_archive(5)
    replay_job.run(params_of(lake, limit=8), lambda: cast("SparkSession", eager()))
    sent = lake.places()
    found = preview(params_of(lake, rate=4.0))
    assert (found.rows, found.there, found.least_seconds) == (12, 8, 3.0)
    assert found.body_bytes == 12 * len(b"broker-a/0/0")
    assert {(each.source, each.destination) for each in found.queues} == {
        (f"orders/{broker}/{number}", f"again/{broker}/{number}")
        for broker, number in lake.topic.queues
    }
    assert lake.places() == sent, "nothing was sent"


def test_a_preview_refuses_what_a_run_would(archived_topic: ArchivedTopic) -> None:
    archived_topic.send_and_archive(5)
    with pytest.raises(ConfigError, match="still holds the original messages"):
        preview(params_of(archived_topic, topic="orders"))


def test_a_limit_is_of_at_least_one_message() -> None:
    with pytest.raises(ConfigError, match="--limit 0: at least one message"):
        destination_options(Params(source="lake", topic="again", limit=0))
