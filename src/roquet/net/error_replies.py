"""Error replies: the reply to a request whose handler raises, or that has none."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from roquet.model.errors import (
    CallRefused,
    FieldError,
    MessageIllegal,
    RoquetError,
    StoreFailed,
    StoreFull,
)
from roquet.wire.call import Reply
from roquet.wire.codes import FLAG_ONEWAY, VERSION_GO_AWAY, ResponseCode
from roquet.wire.command import Command
from roquet.wire.fields import encode_reply

REFUSALS: Final[Mapping[type[RoquetError], ResponseCode]] = MappingProxyType(
    {
        FieldError: ResponseCode.SYSTEM_ERROR,  # Java's reply when a field is missing
        MessageIllegal: ResponseCode.MESSAGE_ILLEGAL,
        StoreFull: ResponseCode.SERVICE_NOT_AVAILABLE,
        StoreFailed: ResponseCode.SYSTEM_ERROR,  # whether the request was carried out is unknown
    }
)
"""Codes of errors that are not faults of our own. They are not logged."""


def refusal(error: Exception) -> Reply | None:
    """The reply to a refused request; None when the error is a fault of our own."""
    if isinstance(error, CallRefused):
        return Reply(code=error.code, remark=error.remark)
    for kind, code in REFUSALS.items():
        if isinstance(error, kind):
            return Reply(code=code, remark=str(error))
    return None


def fault(error: Exception) -> Reply:
    """The reply to a request that met a fault of our own."""
    return Reply(code=ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


def unknown(code: int, reason: str | None = None) -> Reply:
    """The reply to a request that is not served, in Java's words, with the reason if known."""
    why = "" if reason is None else f": {reason}"
    return Reply(
        code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        remark=f" request type {code} not supported{why}",
    )


def busy(remark: str) -> Reply:
    """The reply to a request over a limit: nothing of it was carried out."""
    return Reply(code=ResponseCode.SYSTEM_BUSY, remark=remark)


def go_away(command: Command, _: object) -> bytes | None:
    """The reply of a server that is stopping to new requests: the peer may try another one.

    Peers that do not know this code get no reply: the connection is closed in a moment, which also
    says that nothing was carried out.
    """
    if command.flag & FLAG_ONEWAY or command.version <= VERSION_GO_AWAY:
        return None
    return encode_reply(Reply(code=ResponseCode.GO_AWAY, remark="shutting down"), command)
