r"""Envelope: a message of kombu as the body of a message, and the times that it names.

{"content-type": …, "content-encoding": …, "headers": …, "properties": …}\n the body as it is
"""

from collections.abc import Mapping
from datetime import datetime
from math import ceil
from typing import Any, Final, TypeAlias

import msgspec
from kombu.utils.json import dumps, loads

Payload: TypeAlias = dict[str, Any]
"""A message as kombu's virtual transports know it, with its body."""

_FIELDS: Final = ("content-type", "content-encoding", "headers", "properties")
_NUMBERS: Final = ("expiration", "priority")


class Route(msgspec.Struct):
    """Where a message was sent to."""

    exchange: str
    routing_key: str


class Properties(msgspec.Struct):
    """The properties of a message that the transport reads."""

    delivery_info: Route
    body_encoding: None = None
    """Bodies are sent as they are."""


class Head(msgspec.Struct, rename="kebab"):
    """The first line of a message."""

    content_type: str | None
    content_encoding: str | None
    headers: dict[str, Any]
    properties: Properties


def encode(payload: Payload) -> bytes:
    """The bytes of a message; TypeError for headers that JSON cannot hold."""
    body = payload["body"] or b""
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    return b"%b\n%b" % (dumps({name: payload[name] for name in _FIELDS}).encode(), raw)


def decode(raw: bytes) -> Payload:
    """The message of its bytes; ValueError for bytes that no producer of kombu has sent."""
    head, _, body = raw.partition(b"\n")
    try:
        payload = loads(head)
        msgspec.convert(payload, Head)
        for name in _NUMBERS:
            int(payload["properties"].get(name) or 0)
    except Exception as error:  # the decoders of kombu's types raise what they like
        raise ValueError(f"it is no message of kombu: {error!r:.200}") from error
    return {**payload, "body": body}


def due_ms(headers: Mapping[str, Any] | None) -> int:
    """Time before which a task must not run (`eta`), in ms since 1970; 0 without one.

    0 as well for a time without a zone, which only the application knows: the worker waits.
    """
    try:
        eta = datetime.fromisoformat((headers or {})["eta"])
        return 0 if eta.tzinfo is None else ceil(eta.timestamp() * 1_000)
    except (KeyError, TypeError, ValueError, OverflowError):
        return 0


def is_expired(payload: Payload, born_ms: int, now_ms: int) -> bool:
    """Whether a message has outlived the `expiration` of its producer, which is in ms.

    Tasks never do: Celery's worker drops them itself, and reports that.
    """
    limit = payload["properties"].get("expiration")
    return limit is not None and "task" not in payload["headers"] and now_ms >= born_ms + int(limit)
