"""What a user may set."""

import pytest

from roquet.client.config import ConsumeFrom, ConsumerConfig, name_servers
from roquet.model.errors import ConfigError
from roquet.model.subscription import ConsumeFromWhere
from roquet.rules.allocate import average


def test_name_servers_may_be_one_text_or_a_list() -> None:
    both = ("127.0.0.1:9876", "10.0.0.2:9876")
    assert name_servers("127.0.0.1:9876;10.0.0.2:9876", {}) == both
    assert name_servers(both, {}) == both


def test_the_environment_is_read_when_nothing_is_given() -> None:
    environ = {"NAMESRV_ADDR": "10.0.0.1:9876"}
    assert name_servers(None, environ) == ("10.0.0.1:9876",)
    assert name_servers("10.0.0.9:1", environ) == ("10.0.0.9:1",)


def test_no_name_server_at_all_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"NAMESRV_ADDR.*roquet dev"):
        name_servers(None, {})


@pytest.mark.parametrize("given", ["localhost", "", "127.0.0.1:port"])
def test_a_wrong_address_is_named(given: str) -> None:
    with pytest.raises(ConfigError, match=r"namesrv: .*HOST:PORT"):
        name_servers(given, {})


def test_a_strategy_is_a_name_or_a_function() -> None:
    assert ConsumerConfig().find_strategy() is average
    assert ConsumerConfig(strategy=average).find_strategy() is average
    with pytest.raises(ConfigError, match="'BEST' is unknown; there is AVG"):
        ConsumerConfig(strategy="BEST").find_strategy()


def test_where_a_group_begins_has_a_name_on_the_wire() -> None:
    assert [one.on_the_wire for one in ConsumeFrom] == [
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
    ]
