"""Each order is booked once, however often its message comes.

The note that a key was handled and what handling it does are one database transaction.

Needs a cluster: `roquet dev`, and NAMESRV_ADDR=127.0.0.1:9876 in the environment.
"""

import asyncio
import sqlite3

from roquet.client import ConsumeFrom, ConsumerConfig, Producer, PushConsumer
from roquet.client import ReceivedMessage as Received

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST, concurrency=1)


def book(database: sqlite3.Connection, message: Received) -> bool:
    """Book an order, unless that was done before; whether it was done now."""
    with database:  # one transaction: both rows, or none when the process dies in between
        row = ("billing", message.key)
        new = database.execute("INSERT OR IGNORE INTO handled VALUES (?, ?)", row).rowcount
        if new:
            database.execute("INSERT INTO bookings VALUES (?)", (int(message.body),))
    return bool(new)


async def main() -> None:
    database = sqlite3.connect(":memory:")  # a service has a file, or a server
    database.execute("CREATE TABLE handled (consumer TEXT, key TEXT, PRIMARY KEY (consumer, key))")
    database.execute("CREATE TABLE bookings (amount INTEGER)")

    async with Producer(group="shop") as producer:
        for order in (1, 2, 3, 2, 1):  # the shop was not sure, and sent two of them again
            amount = b"%d" % (order * 100)
            await producer.send("Purchases", amount, keys=[f"order-{order}"])

    async with PushConsumer(group="accounts", topic="Purchases", config=FIRST) as consumer:
        seen = 0

        async def handler(message: Received) -> None:
            nonlocal seen
            print(message.key, "booked" if book(database, message) else "was booked before")
            seen += 1
            if seen == 5:
                consumer.stop()

        await consumer.run(handler)

    (total,) = database.execute("SELECT sum(amount) FROM bookings").fetchone()
    print("in all", total)


asyncio.run(main())
