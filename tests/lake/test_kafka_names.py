import pytest

from roquet.lake import schema
from roquet.lake.kafka_names import COLUMNS, OPTIONS, hint
from roquet.model.errors import ConfigError
from roquet.spark import options
from roquet.spark.sink import options as sink_options

OURS = {"namesrv": "127.0.0.1:9876"}


def test_kafkas_words_lead_to_ours() -> None:
    assert hint("Subscribe", ["topic"], OPTIONS) == "; Kafka's 'Subscribe' is option 'topic' here"
    assert hint("topik", ["topic"], OPTIONS) == "; did you mean 'topic'?"


def test_a_read_with_subscribe_is_an_error_that_names_topic() -> None:
    with pytest.raises(ConfigError, match="Kafka's 'subscribe' is option 'topic' here"):
        options.parse({**OURS, "subscribe": "orders"}, {})
    with pytest.raises(ConfigError, match="Kafka's 'value' is column 'body' here"):
        options.parse({**OURS, "topic": "orders", "columns": "key,value"}, {})


def test_a_frame_with_a_value_is_an_error_that_names_body() -> None:
    settings = sink_options.parse({**OURS, "topic": "orders"}, {})
    with pytest.raises(ConfigError, match="Kafka's 'value' is column 'body' here"):
        sink_options.check_frame([("key", "string"), ("value", "binary")], settings)
    with pytest.raises(ConfigError, match=r"bootstrap\.servers' is option 'namesrv'"):
        sink_options.parse({"kafka.bootstrap.servers": "a:9092"}, {})


def test_every_suggested_name_exists() -> None:
    words = [text.split("'")[1] for text in (*OPTIONS.values(), *COLUMNS.values())]
    known = {*options.SOURCE_OPTIONS, *sink_options.TYPES, *schema.TYPES}
    assert set(words) - known == set()
