import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI

from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    PopConsumer,
    PoppedMessage,
    Producer,
    ReceivedMessage,
    UsageError,
)
from roquet.integrations.fastapi import RocketMQ
from roquet.testing.cluster import Cluster, cluster

pytestmark = pytest.mark.virtual_time

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)


@asynccontextmanager
async def serving(app: FastAPI, mq: RocketMQ) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application whose lifespan has begun."""
    asked = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://app")
    async with mq.lifespan(app), asked as client:
        yield client


def application(mq: RocketMQ) -> FastAPI:
    app = FastAPI(lifespan=mq.lifespan)
    app.include_router(mq.readiness())

    @app.post("/orders")
    async def order(producer: Annotated[Producer, Depends(mq.producer)]) -> str:
        return (await producer.send("orders", b"x")).message_id

    return app


async def until_seen(seen: list[str], count: int) -> None:
    async with asyncio.timeout(60):
        while len(seen) < count:  # noqa: ASYNC110 - of virtual time
            await asyncio.sleep(0.05)


async def test_a_route_sends_and_a_handler_runs_beside_it() -> None:
    async with cluster() as running:
        mq, seen = RocketMQ(running.namesrv_addr), list[str]()

        @mq.handler("orders", group="billing", config=FIRST, tags="*")
        async def bill(message: ReceivedMessage) -> None:
            seen.append(message.message_id)
            await (await mq.producer()).send("bills", message.body)

        app = application(mq)
        for _ in range(2):  # as tests do, which start it once each
            async with serving(app, mq) as client:
                answer = await client.post("/orders")
                await until_seen(seen, 1)
            assert seen == [answer.json()]
            seen.clear()
    assert callable(bill), "the decorated function is as it was"


async def test_consumers_of_any_kind_run_with_the_application() -> None:
    async with cluster() as running:
        mq, seen = RocketMQ(running.namesrv_addr), list[str]()

        async def bill(message: PoppedMessage) -> None:
            await message.extend(60_000)
            seen.append(message.message_id)

        mq.consume(
            lambda: PopConsumer(
                running.namesrv_addr, group="billing", topic="orders", config=FIRST
            ),
            bill,
        )
        async with serving(application(mq), mq) as client:
            await client.post("/orders")
            await until_seen(seen, 1)


async def test_running_handlers_end_before_the_producer_is_closed() -> None:
    async with cluster() as running:
        mq, ended = RocketMQ(running.namesrv_addr), list[str]()
        began = asyncio.Event()

        @mq.handler("orders", group="billing", config=FIRST)
        async def bill(_message: ReceivedMessage) -> None:
            began.set()
            await asyncio.sleep(5)
            ended.append((await (await mq.producer()).send("bills", b"x")).message_id)

        async with serving(application(mq), mq) as client:
            await client.post("/orders")
            await began.wait()
        assert len(ended) == 1


async def test_a_handler_that_never_ends_holds_up_no_end_and_its_message_comes_again() -> None:
    async with cluster() as running:
        config = ConsumerConfig(consume_from=ConsumeFrom.FIRST, close_timeout_ms=1000)
        mq, seen = RocketMQ(running.namesrv_addr), list[str]()

        @mq.handler("orders", group="billing", config=config)
        async def bill(message: ReceivedMessage) -> None:
            seen.append(message.message_id)
            if len(seen) == 1:
                await asyncio.Event().wait()

        async with asyncio.timeout(30):
            async with serving(application(mq), mq) as client:
                await client.post("/orders")
                await until_seen(seen, 1)
        async with serving(application(mq), mq):
            await until_seen(seen, 2)
        assert seen[0] == seen[1]


async def ready(client: httpx.AsyncClient) -> tuple[int, bool, list[str]]:
    answer = await client.get("/readyz")
    return answer.status_code, *answer.json().values()


async def test_an_application_is_ready_while_it_can_send_and_consume(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster() as running:
        mq = RocketMQ(running.namesrv_addr)
        made: list[PopConsumer] = []

        def make() -> PopConsumer:
            made.append(PopConsumer(running.namesrv_addr, group="billing", topic="orders"))
            return made[-1]

        async def bill(_message: PoppedMessage) -> None: ...

        mq.consume(make, bill)
        app = application(mq)
        async with serving(app, mq) as client:
            assert await ready(client) == (200, True, [])
            made[0].stop()
            await asyncio.sleep(1)
            reason = "the consumer of group billing has ended: stopped"
            assert await ready(client) == (503, False, [reason])
            await stop_servers(running)
            with caplog.at_level(logging.CRITICAL, "roquet"):
                status, is_ready, faults = await ready(client)
            assert (status, is_ready, len(faults)) == (503, False, 2)
            assert faults[1].startswith("no broker can be reached: ")
        assert await mq.faults() == ["the application has not started, or ends"]


async def stop_servers(running: Cluster) -> None:
    for server in running.namesrvs:
        await server.__aexit__(None, None, None)


async def test_an_ended_consumer_is_a_reason_and_no_crash(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as running:
        mq = RocketMQ(running.namesrv_addr)

        async def bill(_message: PoppedMessage) -> None: ...

        class Failing(PopConsumer):
            async def run(self, handler: object) -> None:
                raise UsageError("a task was cancelled")

        mq.consume(lambda: Failing(running.namesrv_addr, group="billing", topic="orders"), bill)
        async with serving(application(mq), mq) as client:
            await asyncio.sleep(1)
            reason = "the consumer of group billing has ended: a task was cancelled"
            assert await ready(client) == (503, False, [reason])
    assert "the consumer of group billing had ended" in caplog.text


async def test_a_producer_outside_of_the_lifespan_says_how_it_is_opened() -> None:
    mq = RocketMQ("127.0.0.1:1")
    with pytest.raises(UsageError, match=r"FastAPI\(lifespan=mq.lifespan\)"):
        await mq.producer()
    async with mq.lifespan(None):
        with pytest.raises(UsageError, match="each application has its own"):
            async with mq.lifespan(None):
                pass
