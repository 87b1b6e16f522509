"""Sink options: Spark's strings become settings, or an error that says what to do."""

from typing import Any

import pytest

from roquet.model.errors import ConfigError, UsageError
from roquet.spark.sink.options import BATCH_BYTES_MAX, GROUP, parse

NAMESRV = {"namesrv": "10.0.0.1:9876;10.0.0.2:9876"}


def options(**given: str) -> Any:
    return parse({**NAMESRV, **given}, {})


def test_little_has_to_be_said() -> None:
    found = options(topic="orders")
    assert found.namesrv == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert (found.topic, found.group, found.transactional, found.commits) == (
        "orders", GROUP, False, None,
    )  # fmt: skip
    assert found.timeout_ms == 60_000


def test_the_name_servers_may_be_in_the_environment() -> None:
    assert parse({}, {"NAMESRV_ADDR": "here:1"}).namesrv == ("here:1",)
    with pytest.raises(ConfigError, match="option 'namesrv' is missing"):
        parse({"topic": "orders"}, {})


def test_what_spark_hands_over_itself_is_no_users_option() -> None:
    found = options(checkpointlocation="/tmp/c", queryname="orders")
    assert found.commits is None


def test_an_unknown_option_is_named_with_the_right_one() -> None:
    with pytest.raises(
        ConfigError, match="no option 'transactionel' of a write; did you mean 'transactional'"
    ):
        options(transactionel="true")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"topic": " "}, "'topic' is empty"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "the broker's own"),
        ({"timeout": "60"}, "ms, s, m, h or d"),
        ({"batchBytes": "8MiB"}, "not between 1KiB and"),
        ({"batchBytes": "10"}, "not between 1KiB and"),
        ({"otherColumns": "drop"}, "neither error nor ignore"),
        ({"job": "a/b"}, "is no name"),
        ({"job": "job-1"}, "is no name"),
        ({"transactionTime": "10ms"}, "less than a second"),
        ({"transactional": "true"}, r"\.option\('commits', DIRECTORY\)"),
        ({"transactional": "true", "checkpointLocation": "s3a://bucket/c"}, "no directory of this"),
        ({"commits": " "}, "'commits' is empty"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        options(**given)


def test_names_are_checked_before_anything_is_sent() -> None:
    with pytest.raises(UsageError, match="may hold only letters"):
        options(topic="or ders")
    with pytest.raises(UsageError, match="group name"):
        options(group="a b")


def test_the_records_of_a_stream_are_beside_its_checkpoint() -> None:
    found = options(transactional="true", checkpointLocation="file:///tmp/check/")
    assert found.commits == "/tmp/check/roquet-commits"
    found = options(transactional="yes", checkpointLocation="/tmp/check", commits="/tmp/other")
    assert found.commits == "/tmp/other"


def test_the_rest_is_read_in_its_units() -> None:
    found = options(
        batchBytes="2MiB", timeout="2m", transactionTime="1h", maxMessageSize="1MiB",
        otherColumns="ignore", job="nightly", group="tax",
    )  # fmt: skip
    assert (found.batch_bytes, found.timeout_ms) == (2 * 1024 * 1024, 120_000)
    assert (found.transaction_time_ms, found.body_bytes_max) == (3_600_000, 1024 * 1024)
    assert (found.ignores_others, found.job, found.group) == (True, "nightly", "tax")
    assert found.batch_bytes < BATCH_BYTES_MAX
