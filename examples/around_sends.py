"""Around every send: a line of the log, a metric, and a row in the session of a database.

Needs a cluster: `roquet dev`, and NAMESRV_ADDR=127.0.0.1:9876 in the environment.
"""

import asyncio
import json
import logging
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass

from roquet.client import CallRefused, Message, Producer, ProducerConfig

log = logging.getLogger("shop")
sends: Counter[str] = Counter()  # a service has counters and histograms of its metrics' library
database = sqlite3.connect(":memory:", isolation_level=None)
database.execute("CREATE TABLE outbox (number TEXT)")


@dataclass
class Order:
    number: str
    amount: int
    note: str = ""


def encode(order: Order) -> bytes:
    return json.dumps(asdict(order)).encode()


Outgoing = Message[Order] | list[Message[Order]]


def numbers(outgoing: Outgoing) -> list[str]:
    """Numbers of the orders in one message, or in those of a batch."""
    messages = outgoing if isinstance(outgoing, list) else [outgoing]
    return [message.body.number for message in messages]


@contextmanager
def logged(outgoing: Outgoing) -> Generator[None]:
    try:
        yield
    except Exception as error:
        log.warning("%s not sent: %s", numbers(outgoing), error)
        raise
    log.info("%s sent", numbers(outgoing))


@contextmanager
def measured(outgoing: Outgoing) -> Generator[None]:
    began_s, outcome = time.perf_counter(), "failed"
    try:
        yield
        outcome = "sent"
    finally:
        sends[outcome] += len(numbers(outgoing))
        sends["ms"] += round((time.perf_counter() - began_s) * 1_000)


@asynccontextmanager
async def in_session(outgoing: Outgoing) -> AsyncGenerator[None]:
    """Keep the rows of an order that was sent, and of no other."""
    database.execute("SAVEPOINT sending")  # one send at a time: sends beside it need their own
    rows = [(number,) for number in numbers(outgoing)]
    database.executemany("INSERT INTO outbox VALUES (?)", rows)
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK TO sending")
        raise
    finally:
        database.execute("RELEASE sending")


async def main() -> None:
    # Longer messages than brokers take by default: so that one is refused.
    config = ProducerConfig(
        around=[logged, measured, in_session], body_size_max=8_000_000, compress_from=8_000_000
    )
    async with Producer(config=config, encode=encode) as producer:
        await producer.send("NotedOrders", Order("A-17", 42))
        try:
            await producer.send("NotedOrders", Order("A-18", 43, note="x" * 5_000_000))
        except CallRefused:
            print("A-18 is too long")
        await producer.send_batch([Message("NotedOrders", Order(n, 1)) for n in ("A-19", "A-20")])

    kept = [number for (number,) in database.execute("SELECT number FROM outbox")]
    print(sends["sent"], "sent,", sends["failed"], "failed, noted", *kept)


logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s: %(message)s")
logging.getLogger("roquet").setLevel(logging.WARNING)
asyncio.run(main())
