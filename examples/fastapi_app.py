"""A FastAPI service that sends what it is posted, and consumes beside its requests.

NAMESRV_ADDR=127.0.0.1:9876 uvicorn fastapi_app:app
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel

from roquet.client import ConsumeFrom, ConsumerConfig, Producer, PushConsumer, ReceivedMessage

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)


class Order(BaseModel):
    customer: str
    amount: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """One producer and one consumer for the whole process, opened and closed with it."""
    app.state.billed = []

    async def bill(message: ReceivedMessage) -> None:
        app.state.billed.append(Order.model_validate_json(message.body))

    async with (
        Producer() as app.state.producer,
        PushConsumer(group="billing-api", topic="ApiOrders", config=FIRST) as consumer,
    ):
        app.state.consumer = consumer
        running = asyncio.create_task(consumer.run(bill))
        yield  # requests are served here
        consumer.stop()  # hands out nothing more; run ends once handlers have
        await running


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def order(order: Order, request: Request) -> dict[str, str]:
    producer: Producer = request.app.state.producer
    receipt = await producer.send(
        "ApiOrders", order.model_dump_json().encode(), keys=[order.customer]
    )
    return {"message_id": receipt.message_id}


@app.get("/readyz")
async def readyz(request: Request, response: Response) -> dict[str, str]:
    consumer: PushConsumer = request.app.state.consumer
    health = consumer.health()
    response.status_code = 200 if health else 503
    return {"reason": health.reason}


@app.get("/billed")
async def billed(request: Request) -> list[Order]:
    orders: list[Order] = request.app.state.billed
    return orders
