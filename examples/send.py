"""Send one message, and one with an order key, whose messages share a queue.

Needs a cluster: `roquet dev`, and NAMESRV_ADDR=127.0.0.1:9876 in the environment.
"""

import asyncio

from roquet.client import Producer


async def main() -> None:
    async with Producer(group="shop") as producer:
        receipt = await producer.send("Orders", b'{"id": 4711}', tag="new", keys="4711")
        print("stored in", receipt.queue, "at offset", receipt.queue_offset)
        receipt = await producer.send("Orders", b'{"id": 4711}', tag="paid", order_key="4711")
        print("stored in", receipt.queue, "at offset", receipt.queue_offset)


asyncio.run(main())
