"""A consumer with `/readyz` and `/metrics`, without a web framework.

NAMESRV_ADDR=127.0.0.1:9876 python examples/readyz.py
"""

import asyncio
from asyncio import StreamReader, StreamWriter

from roquet.client import ConsumeFrom, ConsumerConfig, Producer, PushConsumer, ReceivedMessage
from roquet.client.metrics import ClientMetrics

METRICS = ClientMetrics()
CONFIG = ConsumerConfig(consume_from=ConsumeFrom.FIRST, metrics=METRICS)


async def handle(message: ReceivedMessage) -> None:
    print("handled", message.body.decode())


def answer(path: str, consumer: PushConsumer) -> tuple[int, str]:
    """The status and the text of a page."""
    if path == "/metrics":
        return 200, METRICS.text()
    health = consumer.health()
    return (200 if health else 503), f"{health.reason}\n"


async def serve(consumer: PushConsumer, reader: StreamReader, writer: StreamWriter) -> None:
    async with asyncio.timeout(5):
        request = await reader.readline()
        status, text = answer(request.split(b" ")[1].decode(), consumer)
        head = f"HTTP/1.0 {status} \r\nContent-Type: text/plain\r\n\r\n"
        writer.write(head.encode() + text.encode())
        await writer.drain()
    writer.close()


async def ask(port: int, path: str) -> str:
    """The page that a probe gets."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    page = (await reader.read()).decode()
    writer.close()
    return page


async def main() -> None:
    async with Producer() as producer:
        await producer.send("Probed", b"m")
    async with PushConsumer(group="probed", topic="Probed", config=CONFIG) as consumer:
        running = asyncio.create_task(consumer.run(handle))
        pages = await asyncio.start_server(
            lambda reader, writer: serve(consumer, reader, writer), "127.0.0.1", 0
        )
        port = pages.sockets[0].getsockname()[1]
        while not consumer.health():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        while "handled_messages_total" not in METRICS.text():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        print((await ask(port, "/readyz")).splitlines()[-1])
        print(*[line for line in (await ask(port, "/metrics")).splitlines() if "_total{" in line])
        pages.close()
        consumer.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main())
