"""Send many messages quickly, the order of each key kept, and see them being stored.

Needs a cluster: `roquet dev`, and NAMESRV_ADDR=127.0.0.1:9876 in the environment.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator

from roquet.client import Message, Producer


def readings(count: int) -> Iterator[Message]:
    for number in range(count):
        sensor = f"sensor-{number % 50}"
        yield Message("Readings", b"%d" % number, keys=(sensor,), order_key=sensor)


async def main() -> None:
    stored: Counter[str] = Counter()
    async with Producer(group="sensors") as producer:
        async for receipt in producer.send_many(readings(5_000)):
            stored[str(receipt.queue)] += 1
    for queue, count in sorted(stored.items()):
        print(queue, count)


asyncio.run(main())
