"""A frame with columns that no message has, or of wrong types, is refused before it is written."""

import pytest

from roquet.model.errors import ConfigError
from roquet.spark.sink.columns import TYPES, check_frame
from roquet.spark.sink.options import SinkOptions

OPTIONS = SinkOptions(namesrv=("here:1",), topic="orders")


def options(**settings: object) -> SinkOptions:
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
    assert check_frame(fields, options(ignores_others=True)) == ("body",)


def test_a_topic_is_wanted_from_somewhere() -> None:
    with pytest.raises(ConfigError, match="no topic: set"):
        check_frame([("body", "string")], options(topic=None))
    assert check_frame([("body", "string"), ("topic", "string")], options(topic=None))


def test_a_transaction_has_no_delayed_messages() -> None:
    with pytest.raises(ConfigError, match=r"column .delay. delays.*would lose them"):
        check_frame([("body", "string"), ("delay", "int")], options(transactional=True))
