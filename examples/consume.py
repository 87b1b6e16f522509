"""A member of a group: start it several times and see the queues being shared.

Needs a cluster: `roquet dev`, and NAMESRV_ADDR=127.0.0.1:9876 in the environment.
"""

import asyncio

from roquet.client import ConsumeFrom, ConsumerConfig, Producer, PushConsumer, ReceivedMessage

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)


async def main() -> None:
    async with Producer(group="shop") as producer:
        for number in range(10):
            await producer.send("Bills", b"bill %d" % number, tag="new")

    async with PushConsumer(group="billing", topic="Bills", tags="new", config=FIRST) as consumer:
        consumer.on_assigned(lambda queues: print("mine now:", *queues))
        handled = 0

        async def charge(message: ReceivedMessage) -> None:
            nonlocal handled
            print(message.queue, message.queue_offset, message.body.decode())
            handled += 1
            if handled == 10:
                consumer.stop()  # a service would go on until SIGTERM

        await consumer.run(charge)


asyncio.run(main())
