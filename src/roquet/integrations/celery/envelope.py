r"""Envelope: a message of kombu as the body of a message, and the times that it names.

{"content-type": …, "content-encoding": …, "headers": …, "properties": …}\n the body as it is
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from kombu.utils.json import dumps, loads

Payload: TypeAlias = dict[str, Any]
"""A message as kombu's virtual transports know it, with its body."""

_FIELDS: Final = ("content-type", "content-encoding", "headers", "properties")


def encode(payload: Payload) -> bytes:
    """The bytes of a message; TypeError for headers that JSON cannot hold."""
    body = payload["body"] or b""
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    return b"%b\n%b" % (dumps({name: payload[name] for name in _FIELDS}).encode(), raw)


def decode(raw: bytes) -> Payload:
    """The message of its bytes; ValueError for bytes that no producer of kombu has sent."""
    head, _, body = raw.partition(b"\n")
    try:
        payload = {**loads(head), "body": body}
        route = payload["properties"]["delivery_info"]
        names = [route["exchange"], route["routing_key"]]
        if not all(isinstance(value, str) for value in names):
            raise TypeError("exchange and routing key are texts")
    except Exception as error:  # the decoders of kombu's types raise what they like
        raise ValueError(f"it is no message of kombu: {error!r:.200}") from error
    return payload


def due_ms(headers: Mapping[str, Any] | None) -> int:
    """Time before which a task must not run (`eta`), in ms since 1970; 0 without one.

    0 as well for a time without a zone, which only the application knows: the worker waits.
    """
    try:
        eta = datetime.fromisoformat((headers or {})["eta"])
        return 0 if eta.tzinfo is None else -int(-eta.timestamp() * 1_000)
    except (KeyError, TypeError, ValueError, OverflowError):
        return 0


def is_expired(properties: Mapping[str, Any], born_ms: int, now_ms: int) -> bool:
    """Whether a message has outlived the `expiration` of its producer, which is in ms."""
    limit = str(properties.get("expiration"))
    return limit.isdecimal() and now_ms >= born_ms + int(limit)
