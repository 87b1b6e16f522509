"""Structlog: fields of a message in all that its handler logs.

    ConsumerConfig(around=[log_context(group="billing")])

They are bound as context variables, so `structlog.contextvars.merge_contextvars` has to be one of
structlog's processors, as it is by default.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from roquet.client import Message, SendReceipt
from roquet.client.config import Around
from roquet.client.reading.message import InboundMessage
from roquet.integrations import installed_by
from roquet.model.queue import MessageQueue

with installed_by("pip install 'roquet[structlog]'"):
    from structlog.contextvars import bound_contextvars


def log_context(**fields: Any) -> Around:
    """A function for the setting `around` that binds a message's fields, and the given ones.

    Messages do not say which group reads them: `log_context(group="billing")` does.
    """

    def bind(taken: Any) -> AbstractContextManager[None]:
        return bound_contextvars(**{**message_log_fields(taken), **fields})

    return bind


def message_log_fields(taken: Any) -> Mapping[str, Any]:
    """Fields of what a handler is called with: a message, or the list of a batch.

    Those of a message to send are its topic, key and tag. What is not there is left out.
    """
    match taken:
        case InboundMessage():
            fields = {
                "topic": taken.topic,
                **_place(taken.queue, taken.queue_offset),
                "message_id": taken.message_id,
                "key": taken.key,
                "attempt": taken.tries + 1,
            }
        case Message():
            fields = {"topic": taken.topic, "key": next(iter(taken.keys), None), "tag": taken.tag}
        case _:
            topics = sorted({message.topic for message in taken})
            fields = {"topic": ", ".join(topics), "messages": len(taken)}
    return {name: value for name, value in fields.items() if value is not None}


def receipt_log_fields(receipt: SendReceipt) -> Mapping[str, Any]:
    """Fields of a message that was sent: `log.info("sent", **receipt_log_fields(receipt))`."""
    return {
        "topic": receipt.queue.topic,
        **_place(receipt.queue, receipt.queue_offset),
        "message_id": receipt.message_id,
        "status": receipt.status.name,
    }


def _place(queue: MessageQueue, offset: int) -> dict[str, Any]:
    return {"queue": f"{queue.broker_name}/{queue.queue_id}", "offset": offset}
