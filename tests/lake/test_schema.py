"""The columns' names and types agree with what Arrow makes, and a wrong one is named."""

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from roquet.arrow import records
from roquet.lake.schema import DEFAULT, TYPES, check_fields, check_names, ddl
from roquet.model.errors import ConfigError


def test_sparks_types_are_those_of_the_arrow_columns() -> None:
    made = from_arrow_schema(records.SCHEMA)
    assert {field.name: field.dataType.simpleString() for field in made} == dict(TYPES)
    assert tuple(DEFAULT) == records.COLUMNS


def test_ddl_keeps_the_order_of_the_choice() -> None:
    assert ddl(("body", "queue_id")) == "body binary, queue_id int"


def test_an_unknown_column_is_named_with_the_right_one() -> None:
    with pytest.raises(ConfigError, match="no column 'queueOffset'; did you mean 'queue_offset'"):
        check_names(["queueOffset"])


def test_at_least_one_column_is_needed() -> None:
    with pytest.raises(ConfigError, match="no column is chosen"):
        check_names([])


def test_a_users_schema_must_have_our_types() -> None:
    assert check_fields([("body", "binary"), ("key", "string")]) == ("body", "key")
    with pytest.raises(ConfigError, match="'body' is a binary, not a string: cast it"):
        check_fields([("body", "string")])


def test_a_column_is_named_once() -> None:
    with pytest.raises(ConfigError, match="column 'body' is named twice"):
        check_names(["body", "key", "body"])
    with pytest.raises(ConfigError, match="column 'body' is named twice"):
        check_fields([("body", "binary"), ("body", "binary")])
