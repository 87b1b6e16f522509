"""Wrong settings raise errors when they are given."""

import inspect
import re
from typing import Any

import pytest

from roquet.admin.client import AdminClient
from roquet.broker.app import BrokerServer
from roquet.client import blocking
from roquet.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from roquet.client.pop import PopConsumer
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.client.push import PushConsumer
from roquet.client.transaction import TransactionProducer
from roquet.model.errors import ConfigError, UsageError
from roquet.namesrv.app import NameServer
from roquet.testing.cluster import BlockingCluster, cluster


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
