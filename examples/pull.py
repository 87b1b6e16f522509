"""Read a topic from its start, queue by queue, and keep the offsets yourself.

Needs a cluster: `roquet dev`, and NAMESRV_ADDR=127.0.0.1:9876 in the environment.
"""

import asyncio

from roquet.client import Message, Producer, PullConsumer, PullStatus


async def main() -> None:
    async with Producer() as producer:
        await producer.send_many(Message("Audit", b"entry %d" % n) for n in range(100))

    async with PullConsumer(group="audit") as consumer:
        total = 0
        for queue in await consumer.queues("Audit"):
            offset = await consumer.min_offset(queue)
            while True:
                result = await consumer.pull(queue, offset)
                if result.status is PullStatus.NO_NEW:
                    break
                total += len(result.messages)
                offset = result.next_offset
            await consumer.commit(queue, offset)
            print(queue, "read up to", offset)
        print(total, "entries")


asyncio.run(main())
