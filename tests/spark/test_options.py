"""Source options: Spark's strings become settings, and errors name what is wrong."""

import pickle

import pytest

from roquet.lake.schema import DEFAULT, TYPES
from roquet.model.errors import ConfigError
from roquet.model.names import SPARK_GROUP
from roquet.rules.replication.read_from import ReadFrom
from roquet.spark.offset_spec import AtTime, TimeAgo
from roquet.spark.options import SourceOptions, matching, parse, parse_pattern

LEAST = {"namesrv": "127.0.0.1:9876", "topic": "orders"}


def test_the_least_that_is_needed() -> None:
    settings = parse(LEAST, {})
    assert settings == SourceOptions(namesrv=("127.0.0.1:9876",), topics=("orders",))
    assert settings.starting_offsets == "earliest"
    assert settings.fail_on_data_loss
    assert settings.columns == DEFAULT


def test_the_default_group_is_one_of_our_tools_which_lists_of_groups_leave_out() -> None:
    assert parse(LEAST, {}).group == SPARK_GROUP


def test_every_option_with_lower_case_names_as_spark_hands_them_over() -> None:
    settings = parse(
        {
            "namesrv": "a:1;b:2",
            "topic": "orders",
            "startingoffsets": '{"orders": {"broker-a": {"0": 23, "1": -2}}}',
            "endingoffsets": "Latest",
            "maxoffsetspertrigger": "1000",
            "failondataloss": "false",
            "columns": "body, key",
            "minpartitions": "2",
            "maxpartitions": "8",
            "tags": "b || a",
            "pushdown": "true",
            "dropdoubles": "true",
            "bodyformat": "binary",
            "group": "G",
            "sharegroup": "true",
            "decompress": "false",
            "timeout": "5s",
            "readfrom": "Replica",
        },
        {},
    )
    assert settings == SourceOptions(
        namesrv=("a:1", "b:2"),
        topics=("orders",),
        starting_offsets={("orders", "broker-a", 0): 23, ("orders", "broker-a", 1): -2},
        ending_offsets="latest",
        max_offsets_per_trigger=1000,
        fail_on_data_loss=False,
        columns=("body", "key"),
        min_partitions=2,
        max_partitions=8,
        tags=("a", "b"),
        pushdown=True,
        drop_doubles=True,
        group="G",
        share_group=True,
        decompress=False,
        timeout_ms=5000,
        read_from=ReadFrom.REPLICA,
    )


def test_the_name_server_may_come_from_the_environment() -> None:
    assert parse({"topic": "t"}, {"NAMESRV_ADDR": "a:1"}).namesrv == ("a:1",)
    assert parse({**LEAST}, {"NAMESRV_ADDR": "a:1"}).namesrv == ("127.0.0.1:9876",)


def test_several_topics_or_a_pattern() -> None:
    assert parse({**LEAST, "topic": "paid, orders,paid"}, {}).topics == ("paid", "orders")
    settings = parse({"namesrv": "a:1", "topicPattern": "or.*"}, {})
    assert (settings.topics, settings.topic_pattern) == ((), "or.*")


@pytest.mark.parametrize("message", ['{"paid": "latest"}', '{"paid": {"broker-a": {"0": 1}}}'])
def test_an_edge_of_a_topic_that_the_pattern_never_matches_is_named(message: str) -> None:
    options = {"namesrv": "a:1", "topicPattern": "or.*", "startingOffsets": message}
    with pytest.raises(ConfigError, match=r"topicPattern 'or.\*' does not match topic 'paid'"):
        parse(options, {})
    assert parse({**options, "topicPattern": "or.*|paid"}, {}).topic_pattern


def test_times_and_expressions() -> None:
    settings = parse(
        {**LEAST, "startingTime": "-1 h", "endingTime": "1769860800000", "sql92": "a > 1"}, {}
    )
    assert settings.starting_offsets == TimeAgo(3_600_000)
    assert settings.ending_offsets == AtTime(1_769_860_800_000)
    assert settings.sql92 == "a > 1"
    assert parse({**LEAST, "tags": "*"}, {}).tags is None


def test_one_topic_need_not_be_named_in_its_offsets() -> None:
    settings = parse({**LEAST, "startingOffsets": '{"broker-a": {"0": 4}}'}, {})
    assert settings.starting_offsets == {("orders", "broker-a", 0): 4}


def test_every_column() -> None:
    assert parse({**LEAST, "columns": "*"}, {}).columns == tuple(TYPES)


def test_settings_travel_to_workers() -> None:
    settings = parse({**LEAST, "startingOffsets": '{"orders": "-1 h", "*": "group:g"}'}, {})
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"startingOffset": "earliest"}, "no option 'startingOffset'; did you mean 'startingOff"),
        ({"startingOffsets": "first"}, "startingOffsets: 'first' is not earliest, latest, a time"),
        ({"startingOffsets": '{"t": {"b": {"0": 1}}}'}, "startingOffsets: topic 't' is not read"),
        ({"endingOffsets": '{"odrers": "latest"}'}, "topic 'odrers' is not read; did you mean"),
        ({"startingOffsets": "latest", "startingTime": "-1 h"}, "'startingTime' do not go togeth"),
        ({"topicPattern": "o.*"}, "'topic' and 'topicPattern' do not go together"),
        ({"tags": "a", "sql92": "b = 1"}, "'tags' and 'sql92' do not go together"),
        ({"startingTime": "soon"}, "startingTime: 'soon' is not a time"),
        ({"sql92": "a >"}, "sql92: a name or a value was expected, .* at character 4 of 'a >'"),
        ({"tags": "||"}, "tags: the tag expression"),
        ({"group": "a b"}, "group: the group name 'a b' may hold only"),
        ({"topic": "or ders"}, "topic: the topic name 'or ders' may hold only"),
        ({"topic": "orders.*"}, "topicPattern takes a regular expression"),
        ({"bodyFormat": "json"}, "bodyFormat=json: .*read_json"),
        ({"bodySchema": "a int"}, "bodySchema: .*read_json"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger: 0 is less than 1"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger: 'many'"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss: 'perhaps'"),
        ({"columns": "bodi"}, "no column 'bodi'; did you mean 'body'"),
        ({"columns": " , "}, "no column is chosen"),
        ({"minPartitions": "3", "maxPartitions": "2"}, "maxPartitions is less than minPartitions"),
        ({"namesrv": "nowhere"}, "namesrv"),
        ({"topic": " "}, "'topic' is empty"),
        ({"timeout": "5"}, "timeout"),
        ({"readFrom": "suggested"}, "readFrom: 'suggested' is neither master nor replica"),
    ],
)
def test_unusable_options_are_named(more: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse({**LEAST, **more}, {})


def test_missing_options_are_named() -> None:
    with pytest.raises(ConfigError, match="'namesrv' is missing"):
        parse({"topic": "t"}, {})
    with pytest.raises(ConfigError, match="'topic' is missing"):
        parse({"namesrv": "a:1"}, {})


TOPICS = [
    "orders", "orders-eu", "paid", "%RETRY%billing", "%DLQ%billing", "SCHEDULE_TOPIC_XXXX",
    "rmq_sys_wheel_timer", "TBW102", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC",
]  # fmt: skip
HIDDEN = ["DefaultCluster", "broker-a"]


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("orders", ("orders",)),
        ("orders.*", ("orders", "orders-eu")),
        ("order", ()),
        (".*", ("orders", "orders-eu", "paid")),
        ("paid|orders", ("orders", "paid")),
        ("%DLQ%.*", ("%DLQ%billing",)),
        (".*billing", ()),
        ("rmq_sys_.*", ("rmq_sys_wheel_timer",)),
        ("SCHEDULE_TOPIC_XXXX|paid", ("SCHEDULE_TOPIC_XXXX", "paid")),
        ("SCHEDULE.*", ()),
        ("broker-a", ("broker-a",)),
    ],
)
def test_the_whole_name_must_match(pattern: str, meant: tuple[str, ...]) -> None:
    assert matching(pattern, TOPICS, HIDDEN) == meant


def test_a_pattern_that_is_none_is_named() -> None:
    assert parse_pattern(" a.* ", "topicPattern") == "a.*"
    with pytest.raises(ConfigError, match="topicPattern: '\\(' is no regular expression: missing"):
        parse_pattern("(", "topicPattern")
    with pytest.raises(ConfigError, match="'topicPattern' is empty"):
        parse_pattern(" ", "topicPattern")
