"""Lines of a log that say which message they are about: structlog, and Python's own logging.

Needs a cluster, as send.py does, and `pip install 'roquet[structlog]'`.
"""

import asyncio
import logging
import sys

import structlog

from roquet.client import ConsumeFrom, ConsumerConfig, Producer, PushConsumer, ReceivedMessage
from roquet.integrations.structlog import log_context, receipt_log_fields

SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,  # the fields of the message at hand
    structlog.processors.add_log_level,
]


def configure() -> None:
    """One JSON object a line, for both kinds of loggers."""
    structlog.configure(
        [*SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("shop").setLevel(logging.INFO)


log = structlog.get_logger("shop")
library = logging.getLogger("shop.library")  # knows nothing of structlog


async def main() -> None:
    configure()
    config = ConsumerConfig(
        consume_from=ConsumeFrom.FIRST, around=[log_context(group="billing-log")]
    )
    async with (
        Producer() as producer,
        PushConsumer(group="billing-log", topic="LoggedOrders", config=config) as consumer,
    ):
        receipt = await producer.send("LoggedOrders", b"42 EUR", keys=["A-17"])
        log.info("sent", **receipt_log_fields(receipt))

        async def bill(message: ReceivedMessage) -> None:
            log.info("billing", amount=message.body.decode())
            library.warning("a rounded sum")
            consumer.stop()

        await consumer.run(bill)


asyncio.run(main())
