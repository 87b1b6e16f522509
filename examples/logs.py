"""Client logs: loggers below `roquet`, formatted as the program wants them.

Needs a cluster: `roquet dev`, and NAMESRV_ADDR=127.0.0.1:9876 in the environment.
"""

import json
import logging
import sys

from roquet.client.blocking import Producer, PushConsumer


class JsonLines(logging.Formatter):
    """One JSON object a line, as collectors of logs like it."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(
            {"level": record.levelname, "logger": record.name, "message": record.getMessage()}
        )


handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(JsonLines())
logging.basicConfig(level=logging.WARNING, handlers=[handler])
logging.getLogger("roquet").setLevel(logging.INFO)  # joins, queues that come and go, retries
logging.getLogger("roquet.net").setLevel(logging.ERROR)  # connections that come and go: not those

with Producer() as producer:
    producer.send("Notes", b"hello")
with PushConsumer(group="notes", topic="Notes") as consumer:
    consumer.fetch(1, timeout_ms=100)

logging.getLogger("shop").warning("done")
