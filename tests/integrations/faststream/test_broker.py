"""The broker: addresses, security, health, and the page that describes an application."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from faststream.exceptions import SetupError
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256
from faststream.specification.asyncapi import AsyncAPI

from roquet.client import ConfigError, ConsumerConfig, Producer, ProducerConfig, UsageError
from roquet.integrations.faststream import RocketBroker, TestRocketBroker
from roquet.integrations.faststream.subscriber import secured

MakeBroker = Callable[..., RocketBroker]


def test_access_keys_and_tls_are_those_of_producers_and_consumers() -> None:
    settings = secured(ConsumerConfig(), SASLPlaintext("key", "secret", use_ssl=True))
    assert (settings.access_key, settings.secret_key, settings.tls) == ("key", "secret", True)


def test_security_keeps_the_files_of_the_settings() -> None:
    settings = ProducerConfig(tls=Path("ca.pem"))
    assert secured(settings, BaseSecurity(use_ssl=True)).tls == Path("ca.pem")
    assert secured(settings, None) is settings


async def test_a_broker_without_an_address_fails_when_it_connects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    broker = RocketBroker()
    async with TestRocketBroker(broker) as tested:
        assert (await tested.publish("x", "orders")).ok
    with pytest.raises(ConfigError, match="no name server given"):
        await broker.connect()


def test_a_kind_of_security_that_rocketmq_has_not_is_refused() -> None:
    with pytest.raises(SetupError, match="access key"):
        RocketBroker("127.0.0.1:1", security=SASLScram256("name", "password"))


def test_numbers_that_would_handle_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="max_workers"):
        RocketBroker("127.0.0.1:1").subscriber("Orders", group="billing", max_workers=0)


async def test_a_ping_is_answered_from_the_start_to_the_stop(make_broker: MakeBroker) -> None:
    broker = make_broker()
    subscriber = broker.subscriber("Pinged", group="pinged")
    assert not await broker.ping()
    async with broker:
        await broker.start()
        assert await broker.ping(timeout=1)
        assert subscriber.consumer is not None
        await subscriber.consumer.close()
        assert not await broker.ping()
    assert not await broker.ping()


async def test_the_connection_is_a_producer_for_what_faststream_has_not(
    make_broker: MakeBroker,
) -> None:
    async with make_broker() as broker:
        producer = await broker.connect()
        assert isinstance(producer, Producer)
        assert (await producer.send("Plain", b"x")).ok


async def test_a_second_start_changes_nothing(make_broker: MakeBroker) -> None:
    broker = make_broker()
    subscriber = broker.subscriber("Twice", group="twice")
    async with broker:
        await broker.start()
        consumer = subscriber.consumer
        await broker.start()
        assert subscriber.consumer is consumer


def test_the_asyncapi_page_has_topics_groups_and_filters() -> None:
    broker = RocketBroker(["10.0.0.1:9876", "10.0.0.2:9876"], description="the shop")

    @broker.subscriber("Orders", "Returns", group="billing", tags="new || paid")
    @broker.publisher("Bills", description="what is owed")
    async def bill(amount: int) -> int:
        """Bill an order."""
        return amount

    page = cast("dict[str, Any]", AsyncAPI(broker).to_specification().to_jsonable())
    channels = {each["address"]: each["description"] for each in page["channels"].values()}
    about = "Bill an order.\n\nRocketMQ group billing, tags new || paid"
    assert channels == {"Orders": about, "Returns": about, "Bills": "what is owed"}
    servers = page["servers"].values()
    assert [each["protocol"] for each in servers] == ["rocketmq", "rocketmq"]
