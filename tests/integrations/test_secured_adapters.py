"""The adapters against a cluster that speaks TLS alone, wants a certificate and checks users."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from faststream.security import BaseSecurity, SASLPlaintext
from taskiq.exceptions import SendTaskError
from taskiq.receiver import Receiver
from tests.integrations.secured import SECURED, TLS, WRONG, secured_cluster

from roquet.client import (
    CallRefused,
    ConsumeFrom,
    ConsumerConfig,
    Producer,
    ProducerConfig,
    ReceivedMessage,
)
from roquet.integrations.fastapi import RocketMQ
from roquet.integrations.faststream import RocketBroker
from roquet.integrations.faststream.fastapi import RocketStreamRouter
from roquet.integrations.taskiq import RocketMQBroker, RocketMQResultBackend

FIRST: dict[str, Any] = {
    "consume_from": ConsumeFrom.FIRST, "route_period_ms": 50, "rebalance_period_ms": 100
}  # fmt: skip


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with secured_cluster() as address:
        yield address


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - other tasks change it
            await asyncio.sleep(0.01)


def by_security(secret_key: str) -> dict[str, Any]:
    """Options of a broker of FastStream: keys by its own class, files by the settings."""
    return {
        "security": SASLPlaintext("shop", secret_key, use_ssl=True),
        "producer": ProducerConfig(tls=TLS),
        "consumer": ConsumerConfig(tls=TLS, **FIRST),
    }


def by_settings() -> dict[str, Any]:
    """Options of a broker of FastStream: all in the settings of its clients."""
    return {
        "producer": ProducerConfig(**SECURED),
        "consumer": ConsumerConfig(**SECURED, **FIRST),
    }


@pytest.mark.parametrize("pop", [False, True])
@pytest.mark.parametrize("kind", ["security", "settings"])
async def test_a_faststream_application_signs_and_speaks_tls(
    kind: str, pop: bool, address: str
) -> None:
    options = by_security("hush-hush") if kind == "security" else by_settings()
    broker = RocketBroker(address, logger=None, **options)
    name = f"{kind}-{pop}"

    @broker.subscriber(name, group=name, pop=pop)
    async def double(amount: int) -> int:
        return 2 * amount

    async with broker:
        await broker.start()
        answer = await broker.request(21, name, timeout=20)
    assert await answer.decode() == 42


async def test_a_wrong_key_is_refused_to_publishers_and_ends_subscribers(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "roquet")
    async with RocketBroker(address, logger=None, **by_settings()) as owner:
        await owner.publish("x", "Refused")  # makes the topic
    log = logging.getLogger("shop")
    broker = RocketBroker(address, logger=log, **by_security("guessed"))

    @broker.subscriber("Refused", group="refused")
    async def handle(body: str) -> None: ...

    async with broker:
        await broker.start()
        with pytest.raises(CallRefused, match="shop"):
            await broker.publish("x", "Refused")
        await until(lambda: "the subscriber has ended" in caplog.text)
        assert not await broker.ping()


async def test_a_plain_connection_to_a_tls_server_fails_with_its_reason(address: str) -> None:
    broker = RocketBroker(address, logger=None, security=BaseSecurity(use_ssl=False))
    async with broker:
        with pytest.raises(Exception, match=r"127\.0\.0\.1"):
            await broker.publish("x", "Plain")


async def test_a_router_of_fastapi_signs_and_speaks_tls(address: str) -> None:
    router = RocketStreamRouter(address, logger=None, **by_security("hush-hush"))

    @router.subscriber("Routed", group="routed")
    async def double(amount: int) -> int:
        return 2 * amount

    app = FastAPI()
    app.include_router(router)
    async with app.router.lifespan_context(app):
        assert await (await router.broker.request(21, "Routed", timeout=20)).decode() == 42


def taskiq_broker(address: str, settings: dict[str, Any]) -> RocketMQBroker:
    producer = ProducerConfig(**settings)
    backend: RocketMQResultBackend[Any] = RocketMQResultBackend(address, producer=producer)
    consumer = ConsumerConfig(**settings, **FIRST)
    broker = RocketMQBroker(address, producer=producer, consumer=consumer)
    return broker.with_result_backend(backend)


async def test_tasks_and_results_are_signed_and_go_by_tls(address: str) -> None:
    broker, finish = taskiq_broker(address, SECURED), asyncio.Event()

    @broker.task
    async def double(amount: int) -> int:
        return 2 * amount

    broker.is_worker_process = True
    await broker.startup()
    working = asyncio.create_task(Receiver(broker, run_startup=False).listen(finish))
    try:
        task = await double.kiq(21)
        assert (await task.wait_result(timeout=20)).return_value == 42
    finally:
        finish.set()
        await working
        await broker.shutdown()


async def test_a_task_with_a_wrong_key_is_not_sent(address: str) -> None:
    broker = taskiq_broker(address, WRONG)

    @broker.task
    async def double(amount: int) -> int:
        return 2 * amount

    await broker.startup()
    with pytest.raises(SendTaskError) as raised:
        await double.kiq(21)
    assert isinstance(raised.value.__cause__, CallRefused)
    await broker.shutdown()


async def test_a_fastapi_application_signs_and_speaks_tls(address: str) -> None:
    mq, seen = RocketMQ(address, producer=ProducerConfig(**SECURED)), list[bytes]()
    app = FastAPI(lifespan=mq.lifespan)
    app.include_router(mq.readiness())

    @mq.handler("ApiOrders", group="billing", config=ConsumerConfig(**SECURED, **FIRST))
    async def bill(message: ReceivedMessage) -> None:
        seen.append(message.body)

    @app.post("/orders")
    async def order(producer: Annotated[Producer, Depends(mq.producer)]) -> None:
        await producer.send("ApiOrders", b"x")

    transport = httpx.ASGITransport(app=app)
    async with (
        mq.lifespan(app),
        httpx.AsyncClient(transport=transport, base_url="http://app") as client,
    ):
        await client.post("/orders")
        await until(lambda: seen)
        assert (await client.get("/readyz")).json() == {"ready": True, "faults": []}
