"""A FastStream service: orders come in, bills go out in batches, and a quote answers a request.

NAMESRV_ADDR=127.0.0.1:9876 faststream run faststream_app:app
"""

import asyncio

from faststream import FastStream
from pydantic import BaseModel

from roquet.client import ConsumeFrom, ConsumerConfig
from roquet.integrations.faststream import RocketBroker, RocketResponse

broker = RocketBroker(
    # Topics that their first message creates are looked for each second.
    consumer=ConsumerConfig(consume_from=ConsumeFrom.FIRST, route_period_ms=1000)
)
app = FastStream(broker, logger=None)


class Order(BaseModel):
    customer: str
    amount: int


class Bill(BaseModel):
    customer: str
    total: int


@broker.subscriber("ServiceOrders", group="service-billing", tags="new", max_workers=8)
@broker.publisher("ServiceBills")
async def bill(order: Order) -> RocketResponse:
    """A message is acknowledged when this has ended; if it raises, the message comes again."""
    made = Bill(customer=order.customer, total=order.amount * 119 // 100)
    return RocketResponse(made, keys=[order.customer], order_key=order.customer)


@broker.subscriber("ServiceBills", group="service-mail", batch=True, batch_size=50)
async def mail(bills: list[Bill]) -> None:
    for made in bills:
        print(f"mailed {made.customer} {made.total} EUR")
    app.exit()  # a service would go on until SIGTERM


@broker.subscriber("ServiceQuotes", group="service-quotes")
async def quote(order: Order) -> int:
    return order.amount * 119 // 100


@app.after_startup
async def first_order() -> None:
    order = Order(customer="ada", amount=100)
    answer = await broker.request(order, "ServiceQuotes", timeout=20)
    print("a quote:", await answer.decode())
    await broker.publish(order, "ServiceOrders", tag="new", keys=["ada"])


if __name__ == "__main__":
    asyncio.run(app.run())
