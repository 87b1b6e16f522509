"""A web service: its requests send, a consumer beside them handles what comes.

    pip install 'roquet[fastapi]' uvicorn
    NAMESRV_ADDR=127.0.0.1:9876 uvicorn fastapi_app:app

uvicorn installs handlers of its own for SIGTERM and Ctrl-C; Roquet leaves signals to it. The end of
the application stops the consumer: running handlers end, and progress is saved.
"""

from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel

from roquet.client import ConsumeFrom, ConsumerConfig, Producer, ReceivedMessage
from roquet.integrations.fastapi import RocketMQ

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)

mq = RocketMQ()
app = FastAPI(lifespan=mq.lifespan)
app.include_router(mq.readiness())  # GET /readyz

bills: list["Order"] = []


class Order(BaseModel):
    customer: str
    amount: int


@mq.handler("ApiOrders", group="billing-api", config=FIRST)
async def bill(message: ReceivedMessage) -> None:
    bills.append(Order.model_validate_json(message.body))


@app.post("/orders", status_code=202)
async def order(
    order: Order, producer: Annotated[Producer, Depends(mq.producer)]
) -> dict[str, str]:
    receipt = await producer.send(
        "ApiOrders", order.model_dump_json().encode(), keys=[order.customer]
    )
    return {"message_id": receipt.message_id}


@app.get("/billed")
async def billed() -> list[Order]:
    return bills
