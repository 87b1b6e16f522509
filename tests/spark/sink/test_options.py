"""Sink options: Spark's strings become settings, or an error that says what to do."""

from typing import Any

import pytest

from roquet.model.errors import ConfigError, UsageError
from roquet.spark.sink.options import BATCH_BYTES_MAX, GROUP, TYPES, SinkOptions, check_frame, parse

NAMESRV = {"namesrv": "10.0.0.1:9876;10.0.0.2:9876"}


def options(**settings: str) -> Any:
    return parse({**NAMESRV, **settings}, {})


def test_few_options_are_required() -> None:
    parsed = options(topic="orders")
    assert parsed.namesrv == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert (parsed.topic, parsed.group, parsed.transactional, parsed.commits) == (
        "orders", GROUP, False, None,
    )  # fmt: skip
    assert parsed.timeout_ms == 60_000


def test_the_name_servers_may_be_in_the_environment() -> None:
    assert parse({}, {"NAMESRV_ADDR": "here:1"}).namesrv == ("here:1",)
    with pytest.raises(ConfigError, match="option 'namesrv' is missing"):
        parse({"topic": "orders"}, {})


def test_options_that_spark_adds_are_accepted() -> None:
    parsed = options(checkpointlocation="/tmp/c", queryname="orders")
    assert parsed.commits is None


def test_an_unknown_option_is_named_with_the_right_one() -> None:
    with pytest.raises(
        ConfigError, match="no option 'transactionel' of a write; did you mean 'transactional'"
    ):
        options(transactionel="true")


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"topic": " "}, "'topic' is empty"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "the broker's own"),
        ({"timeout": "60"}, "ms, s, m, h or d"),
        ({"batchBytes": "8MiB"}, "not between 1KiB and"),
        ({"batchBytes": "10"}, "not between 1KiB and"),
        ({"otherColumns": "drop"}, "neither error nor ignore"),
        ({"lessDurable": "ignore"}, "neither retry nor accept"),
        (
            {"transactional": "true", "commits": "/c", "lessDurable": "accept"},
            "leave out lessDurable=accept",
        ),
        ({"job": "a/b"}, "is no name"),
        ({"job": "job-1"}, "is no name"),
        ({"transactionTime": "10ms"}, "less than a second"),
        ({"transactional": "true"}, r"\.option\('commits', DIRECTORY\)"),
        ({"transactional": "true", "checkpointLocation": "hdfs://name/c"}, "no directory of this"),
        ({"commits": " "}, "'commits' is empty"),
    ],
)
def test_unusable_options_are_named(settings: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        options(**settings)


def test_names_are_checked_before_anything_is_sent() -> None:
    with pytest.raises(UsageError, match="may hold only letters"):
        options(topic="or ders")
    with pytest.raises(UsageError, match="group name"):
        options(group="a b")


def test_the_records_of_a_stream_are_beside_its_checkpoint() -> None:
    parsed = options(transactional="true", checkpointLocation="file:///tmp/check/")
    assert parsed.commits == "/tmp/check/roquet-commits"
    parsed = options(transactional="yes", checkpointLocation="/tmp/check", commits="/tmp/other")
    assert parsed.commits == "/tmp/other"


def test_the_records_of_a_stream_may_be_in_an_object_store() -> None:
    parsed = options(transactional="true", checkpointLocation="s3a://lake/check/")
    assert parsed.commits == "s3a://lake/check/roquet-commits"
    assert options(commits="gs://lake/commits").commits == "gs://lake/commits"


def test_the_rest_is_read_in_its_units() -> None:
    parsed = options(
        batchBytes="2MiB", timeout="2m", transactionTime="1h", maxMessageSize="1MiB",
        otherColumns="ignore", job="nightly", group="tax", lessDurable="accept",
    )  # fmt: skip
    assert (parsed.batch_bytes, parsed.timeout_ms) == (2 * 1024 * 1024, 120_000)
    assert (parsed.transaction_time_ms, parsed.body_bytes_max) == (3_600_000, 1024 * 1024)
    assert (parsed.ignores_others, parsed.job, parsed.group) == (True, "nightly", "tax")
    assert parsed.accepts_less_durable
    assert not options(lessDurable="retry").accepts_less_durable
    assert parsed.batch_bytes < BATCH_BYTES_MAX


OPTIONS = SinkOptions(namesrv=("here:1",), topic="orders")


def settings_of(**settings: object) -> SinkOptions:
    return SinkOptions(**{"namesrv": ("here:1",), "topic": "orders", **settings})  # type: ignore[arg-type]


def test_every_column_is_allowed_but_two_with_the_same_meaning_are_not() -> None:
    fields = [(name, kinds[0]) for name, kinds in TYPES.items() if name != "keys"]
    assert check_frame(fields, OPTIONS) == tuple(name for name in TYPES if name != "keys")


def test_columns_are_found_however_they_are_written() -> None:
    assert check_frame([("Body", "string"), ("KEY", "varchar(20)")], OPTIONS) == ("Body", "KEY")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ([("body", "string"), ("queue_id", "int")], "no column 'queue_id' in a message.*ignore"),
        ([("body", "string"), ("tags", "string")], "did you mean 'tag'"),
        ([("key", "string")], "column 'body' is missing"),
        ([("body", "int")], "column 'body' is int, not binary or string: cast it"),
        ([("body", "binary"), ("deliver_at", "timestamp_ntz")], "not timestamp: cast it"),
        ([("body", "binary"), ("flag", "bigint")], "tinyint or smallint or int"),
        ([("body", "binary"), ("Body", "binary")], "are the same one"),
        ([("body", "binary"), ("key", "string"), ("keys", "string")], "leave one out"),
    ],
)
def test_a_wrong_frame_is_refused(fields: list[tuple[str, str]], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        check_frame(fields, OPTIONS)


def test_other_columns_can_be_ignored() -> None:
    fields = [("body", "string"), ("broker", "string")]
    assert check_frame(fields, settings_of(ignores_others=True)) == ("body",)


def test_a_topic_is_wanted_from_somewhere() -> None:
    with pytest.raises(ConfigError, match="no topic: set"):
        check_frame([("body", "string")], settings_of(topic=None))
    assert check_frame([("body", "string"), ("topic", "string")], settings_of(topic=None))


def test_a_transaction_has_no_delayed_messages() -> None:
    with pytest.raises(ConfigError, match=r"column .delay. delays.*would lose them"):
        check_frame([("body", "string"), ("delay", "int")], settings_of(transactional=True))
