"""Request bytes: messages of the protocol from what strangers send.

gRPC logs an error of a deserializer with its traceback, and answers UNKNOWN.
"""

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from roquet.rules.proxy.status import ProxyRefusal, StatusCode


def reader(kind: Any) -> Callable[[bytes], Any]:
    """A deserializer that gives None for bytes that are no message of a kind."""

    def read(data: bytes) -> Any:
        try:
            return kind.FromString(data)
        except DecodeError:
            return None

    return read


def check_read(message: Any) -> Any:
    """Return a message; raises ProxyRefusal for None, by `reader`."""
    if message is None:
        raise ProxyRefusal(StatusCode.BAD_REQUEST, "the bytes are no request of this method")
    return message
