"""Encoding: makes the body of a message of its value, and names the value's type in a property."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from roquet.client.sending.prepare import check_message
from roquet.model.errors import UsageError
from roquet.model.message import Message
from roquet.model.properties import BODY_TYPE


def encode_message(message: Message[Any], encode: Callable[[Any], bytes]) -> Message:
    """The message with its value encoded; an exception of `encode` is raised with a note."""
    check_message(message)
    value = message.body
    properties: object = message.properties
    name = type(value).__name__
    try:
        body = encode(value)
    except Exception as error:
        error.add_note(f"`encode` failed on a {name} for topic {message.topic}: nothing was sent")
        raise
    if type(body) is not bytes:
        raise UsageError(f"`encode` returns bytes: of a {name} it made a {type(body).__name__}")
    if isinstance(properties, Mapping) and BODY_TYPE not in properties:
        properties = {**properties, BODY_TYPE: name}
    return replace(message, body=body, properties=properties)
