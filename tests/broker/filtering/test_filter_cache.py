import logging
from collections.abc import Mapping
from typing import Any

import pytest
from tests.broker.conftest import refuses

from roquet.broker.filtering.filter_cache import (
    CACHE_SIZE_MAX,
    EXPRESSIONS_MAX,
    CompiledFilter,
    FilterCache,
)
from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import CallRefused
from roquet.model.subscription import SQL92, Subscription
from roquet.rules.sql92 import SIZE_MAX
from roquet.wire.codes import ResponseCode
from roquet.wire.records.property_text import encode_properties

pytestmark = pytest.mark.usefixtures("form")

CONFIG = BrokerConfig()


@pytest.fixture
def filters() -> FilterCache:
    return FilterCache()


def matches(filters: FilterCache, expression: str, properties: Mapping[str, str]) -> bool:
    return is_matched(filters.find(CONFIG, SQL92, expression), properties)


def is_matched(compiled: CompiledFilter, properties: Mapping[str, str]) -> bool:
    text = encode_properties(properties)
    return compiled.matching(text, [0], [0, len(text)], 1) == [0]


def refused(
    filters: FilterCache, config: BrokerConfig = CONFIG, **subscription: Any
) -> CallRefused:
    arguments = {"topic": "orders", "expression_type": SQL92, **subscription}
    with pytest.raises(CallRefused) as error:
        filters.of_subscription(config, Subscription(**arguments))
    return error.value


def test_an_expression_is_evaluated_on_stored_properties(filters: FilterCache) -> None:
    assert matches(filters, "a > 5 AND b = 'x'", {"b": "x", "a": "6"})
    assert not matches(filters, "a > 5 AND b = 'x'", {"b": "x", "a": "5"})
    assert not matches(filters, "a > 5", {"a": "six"})
    assert matches(filters, "TAGS IS NULL", {"a": "TAGS"})


def test_an_expression_is_compiled_once(filters: FilterCache) -> None:
    compiled = filters.find(CONFIG, SQL92, "a > 5")
    assert filters.find(CONFIG, SQL92, "a > 5") is compiled
    assert compiled.terms == 2
    assert len(filters) == 1


def test_a_bad_expression_is_refused_with_the_position_of_the_error(filters: FilterCache) -> None:
    for _ in range(2):  # the error is remembered, too
        with refuses(ResponseCode.SUBSCRIPTION_PARSE_FAILED, r"failed: .* at character 4 of 'a >'"):
            filters.find(CONFIG, SQL92, "a >")
    with pytest.raises(CallRefused, match="is empty"):
        filters.find(CONFIG, SQL92, None)


def test_other_kinds_of_expressions_are_unknown(filters: FilterCache) -> None:
    with refuses(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "'SQL99' is unknown: TAG or SQL92"):
        filters.find(CONFIG, "SQL99", "a")


def test_a_broker_that_filters_by_tags_only_refuses_expressions(filters: FilterCache) -> None:
    config = BrokerConfig(property_filter=False)
    with refuses(ResponseCode.SYSTEM_ERROR) as error:
        filters.find(config, SQL92, "a")
    assert error.value.remark == ("The broker does not support consumer to filter message by SQL92")
    assert refused(filters, config, sub_string="a").code == ResponseCode.SYSTEM_ERROR


def test_apache_misreadings_of_expressions_are_repeated_if_configured(filters: FilterCache) -> None:
    config = BrokerConfig(sql_compatibility=True)
    assert is_matched(filters.find(config, SQL92, "a = 0x10"), {"a": "0"})
    with pytest.raises(CallRefused):
        filters.find(CONFIG, SQL92, "a = 0x10")


def test_a_bad_expression_of_a_heartbeat_is_logged_once(
    filters: FilterCache, caplog: pytest.LogCaptureFixture
) -> None:
    said = [
        Subscription(topic="orders", sub_string="a >", expression_type=SQL92),
        Subscription(topic="orders", sub_string="a > 1", expression_type=SQL92),
        Subscription(topic="orders", sub_string="a >"),
    ]
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            filters.precompile(CONFIG, "billing", said)
            filters.precompile(BrokerConfig(property_filter=False), "billing", said)
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("group billing, topic orders: a name or a value was expected")
    error = refused(filters, sub_string="a >")
    assert error.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert error.remark is not None
    assert "filter data is not exist!" in error.remark
    assert "at character 4" in error.remark


def test_an_expression_of_a_heartbeat_is_found(filters: FilterCache) -> None:
    said = Subscription(topic="orders", sub_string="a > 1", expression_type=SQL92)
    filters.precompile(CONFIG, "billing", [said])
    assert filters.of_subscription(CONFIG, said).expression == "a > 1"


def test_a_heartbeat_compiles_a_limited_number_of_new_expressions(filters: FilterCache) -> None:
    said = [
        Subscription(topic="orders", sub_string=f"a > {n}" + " " * 995, expression_type=SQL92)
        for n in range(9)
    ]
    assert filters.precompile(CONFIG, "billing", said, 3_500) == 500
    assert len(filters) == 3
    assert filters.of_subscription(CONFIG, said[8]).terms == 2, "the others when they are used"


def test_the_number_of_cached_expressions_is_limited(filters: FilterCache) -> None:
    first = filters.find(CONFIG, SQL92, "a = 0")
    for number in range(1, EXPRESSIONS_MAX + 10):
        filters.find(CONFIG, SQL92, f"a = {number}")
        assert filters.find(CONFIG, SQL92, "a = 0") is first, "what is in use stays"
    assert len(filters) == EXPRESSIONS_MAX


def test_long_expressions_push_others_out(filters: FilterCache) -> None:
    long = f"a = '{'x' * (SIZE_MAX - 20)}' OR a = "
    for number in range(2 * CACHE_SIZE_MAX // SIZE_MAX):
        filters.find(CONFIG, SQL92, f"{long}{number}")
    assert len(filters) <= CACHE_SIZE_MAX // (SIZE_MAX - 20)
