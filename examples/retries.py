"""A consumer whose handler fails now and then: retries, a delay of one's own, dead letters.

Needs a cluster: `roquet dev`, and NAMESRV_ADDR=127.0.0.1:9876 in the environment.
"""

import asyncio
import json

from roquet.client import ConsumeFrom, ConsumerConfig, Producer, PushConsumer, ReceivedMessage

CONFIG = ConsumerConfig(
    consume_from=ConsumeFrom.FIRST,  # a new group begins with the oldest message
    concurrency=8,  # handlers at work at one time
    retries_max=3,  # then a message is a dead letter
)


class Busy(Exception):
    """The bank takes no orders this moment."""


async def charge(order: dict[str, int], tries: int) -> None:
    await asyncio.sleep(0.01)  # the bank works
    if order["amount"] == 13 and tries < 2:
        raise Busy


async def main() -> None:
    async with Producer() as producer:
        for amount in (5, 13, 21):
            await producer.send("Charges", json.dumps({"amount": amount}).encode())
        await producer.send("Charges", b"not JSON at all")

    done = 0
    async with PushConsumer(group="charging", topic="Charges", config=CONFIG) as consumer:

        async def handle(message: ReceivedMessage) -> None:
            nonlocal done
            try:
                order = json.loads(message.body)
            except ValueError:
                await message.dead_letter()  # no retry will help
                print("given up:", message.body)
            else:
                try:
                    await charge(order, message.reconsume_times)
                except Busy:
                    await message.nack(delay_ms=1_000)  # again in a second
                    print("later:", order["amount"])
                    return
                print("charged", order["amount"], "after", message.reconsume_times, "retries")
            done += 1
            if done == 4:
                consumer.stop()  # a service would go on until SIGTERM

        await consumer.run(handle)


asyncio.run(main())
