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


class Route(msgspec.Struct):
    """Where a message was sent to."""

    exchange: str
    routing_key: str


class Properties(msgspec.Struct):
    """The properties of a message that the transport reads."""

    delivery_info: Route
    priority: int | str | None = None
    reply_to: str | None = None
    body_encoding: None = None
    """Bodies are sent as they are."""


class Head(msgspec.Struct, rename="kebab"):
    """The first line of a message."""

    content_type: str | None
    content_encoding: str | None
    headers: dict[str, Any]
    properties: Properties


def encode(payload: Payload) -> bytes:
    """The bytes of a message; ValueError or TypeError for one that `decode` would refuse."""
    head = {name: payload[name] for name in _FIELDS}
    _check(head)
    body = payload["body"] or b""
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    return b"%b\n%b" % (dumps(head).encode(), raw)


def decode(raw: bytes) -> Payload:
    """The message of its bytes; ValueError for bytes that no producer of kombu has sent."""
    head, _, body = raw.partition(b"\n")
    try:
        payload: Payload = loads(head)
        _check(payload)
    except Exception as error:  # the decoders of kombu's types raise what they like
        raise ValueError(f"it is no message of kombu: {error!r:.200}") from error
    return {**payload, "body": body}


def _check(head: Payload) -> None:
    int(msgspec.convert(head, Head).properties.priority or 0)


def due_ms(headers: Mapping[str, Any] | None) -> int:
    """Time before which a task must not run (`eta`), in ms since 1970; 0 without one.

    0 as well for a time without a zone, which only the application knows: the worker waits.
    """
    try:
        eta = datetime.fromisoformat((headers or {})["eta"])
        return 0 if eta.tzinfo is None else ceil(eta.timestamp() * 1_000)
    except (KeyError, TypeError, ValueError, OverflowError):
        return 0
