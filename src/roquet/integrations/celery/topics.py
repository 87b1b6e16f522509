"""Topics: names of kombu's queues and exchanges as names of topics, which allow fewer characters.

celery            celery                     a queue; its consumer group has the name, too
mail.de           mail__2ede                 each byte of another character as __ and its number
(exchange) media  media__exchange            holds messages for the queues bound to the exchange
"""

import re
from typing import Final

_WRITTEN_AS_NUMBERS: Final = re.compile(r"__|[^A-Za-z0-9_-]")

DEFAULT_EXCHANGE: Final = "__exchange"
"""Topic of messages to temporary queues by their names, and of notes on tasks that wait."""


def queue_topic(queue: str) -> str:
    """Topic and consumer group of a queue; no other queue and no exchange has the same."""
    return _WRITTEN_AS_NUMBERS.sub(
        lambda part: "".join(f"__{byte:02x}" for byte in part[0].encode("utf-8", "surrogatepass")),
        queue,
    )


def exchange_topic(exchange: str) -> str:
    """Topic of an exchange."""
    return queue_topic(exchange) + DEFAULT_EXCHANGE
