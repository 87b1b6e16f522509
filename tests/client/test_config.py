"""Settings of clients and their checks."""

import inspect
import re
from typing import Any

import pytest

from roquet.admin.client import AdminClient
from roquet.broker.app import BrokerServer
from roquet.client import blocking
from roquet.client.config import (
    ClientConfig,
    ConsumeFrom,
    ConsumerConfig,
    ProducerConfig,
    flow_limits,
    resolve_name_servers,
)
from roquet.client.pop import PopConsumer
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.client.push import PushConsumer
from roquet.client.transaction import TransactionProducer
from roquet.model.errors import ConfigError, UsageError
from roquet.model.subscription import ConsumeFromWhere
from roquet.namesrv.app import NameServer
from roquet.testing.cluster import BlockingCluster, cluster
from roquet.wire.records.compression import Compression


def test_name_servers_may_be_one_text_or_a_list() -> None:
    both = ("127.0.0.1:9876", "10.0.0.2:9876")
    assert resolve_name_servers("127.0.0.1:9876;10.0.0.2:9876", {}) == both
    assert resolve_name_servers(both, {}) == both


def test_the_environment_is_read_when_nothing_is_given() -> None:
    environ = {"NAMESRV_ADDR": "10.0.0.1:9876"}
    assert resolve_name_servers(None, environ) == ("10.0.0.1:9876",)
    assert resolve_name_servers("10.0.0.9:1", environ) == ("10.0.0.9:1",)


def test_no_name_server_at_all_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"NAMESRV_ADDR.*roquet dev"):
        resolve_name_servers(None, {})


@pytest.mark.parametrize("given", ["localhost", "", "127.0.0.1:port"])
def test_a_wrong_address_is_named(given: str) -> None:
    with pytest.raises(ConfigError, match=r"namesrv: .*HOST:PORT"):
        resolve_name_servers(given, {})


def test_where_a_group_begins_has_a_name_on_the_wire() -> None:
    assert [one.wire_value for one in ConsumeFrom] == [
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
    ]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"retry_times": -1}, "retry_times: -1 is less than 0"),
        ({"linger_ms": -5}, "linger_ms: -5 is less than 0"),
        ({"send_timeout_ms": 0}, "send_timeout_ms: 0 is less than 1"),
        ({"try_timeout_ms": 0}, "try_timeout_ms: 0 is less than 1"),
        ({"batch_bytes": 0}, "batch_bytes: 0 is less than 1"),
        ({"new_topic_queues": 0}, "new_topic_queues: 0 is less than 1"),
        ({"metrics": 3}, "metrics: 3 is not a ClientMetrics"),
        ({"selector": "west"}, "selector: expected a function, not 'west'"),
        ({"compress_level": 10}, "compress_level: 10 is not within 0 to 9"),
        ({"compress_level": 23, "compression": Compression.ZSTD}, "not within 0 to 22"),
    ],
)
def test_a_producers_setting_that_cannot_be_is_named(settings: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        ProducerConfig(**settings)


def test_a_producer_tries_and_waits_as_in_java_unless_told_otherwise() -> None:
    config = ProducerConfig(linger_ms=0, compression=Compression.LZ4, compress_level=12)
    assert (config.send_timeout_ms, config.retry_times) == (3_000, 2)
    assert (config.fault_tolerance, config.retry_less_durable) == (False, False)
    assert (config.compress_from, config.body_size_max) == (4_096, 4_194_304)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"concurrency": 0}, "concurrency: 0"),
        ({"in_flight_max": 0}, "in_flight_max: 0"),
        ({"retries_max": -1}, "retries_max: -1"),
        ({"handler_limit_ms": 0}, "handler_limit_ms: 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_that_cannot_work_are_said(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ConsumerConfig(**settings)


def test_an_ordered_queue_has_no_span() -> None:
    assert flow_limits(ConsumerConfig(in_flight_span_max=9)).span == 9
    assert flow_limits(ConsumerConfig(in_flight_span_max=9, ordered=True)).span is None


@pytest.mark.parametrize(
    ("kind", "settings", "text"),
    [
        (ProducerConfig, {"linger_ms": "x"}, "linger_ms: 'x' is not a whole number or None"),
        (ProducerConfig, {"linger_ms": -1}, "linger_ms: -1 is less than 0"),
        (ProducerConfig, {"close_timeout_ms": -1}, "close_timeout_ms: -1 is less than 0"),
        (ProducerConfig, {"retry_times": 1.5}, "retry_times: 1.5 is not a whole number"),
        (ProducerConfig, {"compression": 5}, "compression: 5 is not one of Compression.LZ4"),
        (ProducerConfig, {"lingerms": 5}, "lingerms: ProducerConfig has no such setting; did you"),
        (ConsumerConfig, {"concurency": 5}, "did you mean 'concurrency'?"),
        (ConsumerConfig, {"concurrency": True}, "concurrency: True is not a whole number"),
        (ConsumerConfig, {"concurrency": 0}, "concurrency: 0 is less than 1"),
        (ConsumerConfig, {"ordered": 1}, "ordered: 1 is not True or False"),
        (ConsumerConfig, {"consume_from": "first"}, "is not one of ConsumeFrom.LAST"),
        (ClientConfig, {"timeout_ms": -1}, "timeout_ms: -1 is less than 1"),
        (ClientConfig, {"tls": 3}, "tls: 3 is not True or False or a text or a Path or a Tls"),
        (ClientConfig, {"rng": 3}, "rng: 3 is not a Random"),
    ],
)
def test_a_wrong_setting_is_named(kind: Any, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        kind(**settings)


@pytest.mark.parametrize("kind", [PushConsumer, PullConsumer, PopConsumer, Producer])
@pytest.mark.parametrize("config", [{"timeout_ms": 5}, ClientConfig()], ids=["dict", "other"])
def test_a_config_of_another_kind_is_refused(kind: Any, config: Any) -> None:
    with pytest.raises(UsageError, match=r"config: a \w+Config, not"):
        kind("127.0.0.1:9876", group="g", config=config)


def test_names_that_are_not_strings_are_refused() -> None:
    address: Any = 12
    with pytest.raises(ConfigError, match="namesrv: 'HOST:9876'"):
        PushConsumer(address, group="g")
    topic: Any = 5
    with pytest.raises(UsageError, match="the topic name is a text, not 5"):
        PushConsumer("127.0.0.1:9876", group="g", topic=topic)
    tags: Any = ["new"]
    with pytest.raises(UsageError, match="tags are one str"):
        PushConsumer("127.0.0.1:9876", group="g", topic="t", tags=tags)


@pytest.mark.parametrize(
    "made",
    [
        PushConsumer, PullConsumer, PopConsumer, Producer, TransactionProducer,
        blocking.PushConsumer, blocking.PullConsumer, blocking.PopConsumer, blocking.Producer,
        blocking.TransactionProducer,
        AdminClient, NameServer, BrokerServer, cluster, BlockingCluster,
        ProducerConfig, ConsumerConfig, ClientConfig,
    ],
    ids=lambda made: f"{made.__module__}.{made.__qualname__}",
)  # fmt: skip
def test_signatures_show_neither_addresses_nor_all_defaults(made: Any) -> None:
    shown = str(inspect.signature(made))
    assert " at 0x" not in shown
    assert "Config(" not in shown
