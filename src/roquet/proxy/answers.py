"""Statuses of answers: what an error means to a client of RocketMQ 5."""

from collections.abc import Sequence
from typing import Final

from roquet.model.errors import (
    CallRefused,
    CallTimeout,
    ConnectFailed,
    FieldError,
    MessageIllegal,
    NotFound,
    RoquetError,
    UsageError,
)
from roquet.proxy.protos import definition_pb2 as pb
from roquet.rules.proxy.status import ProxyRefusal, StatusCode, common_code
from roquet.wire.codes import ResponseCode

OK: Final = pb.Status(code=pb.OK, message="OK")

REFUSED: Final[dict[int, StatusCode]] = {
    ResponseCode.SYSTEM_BUSY: StatusCode.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: StatusCode.NOT_IMPLEMENTED,
    ResponseCode.NO_PERMISSION: StatusCode.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: StatusCode.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: StatusCode.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.MESSAGE_ILLEGAL: StatusCode.MESSAGE_CORRUPTED,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: StatusCode.ILLEGAL_FILTER_EXPRESSION,
}
"""Statuses by the codes with which brokers refuse; others are INTERNAL_SERVER_ERROR."""


def status_of(error: RoquetError) -> pb.Status:
    """The status of a request that ended with an error."""
    return pb.Status(code=code_of(error).name, message=str(error))


def common_status(statuses: Sequence[pb.Status]) -> pb.Status:
    """Status of a request with several results: theirs, or MULTIPLE_RESULTS if they differ."""
    code = common_code(StatusCode(status.code) for status in statuses)
    if code is StatusCode.MULTIPLE_RESULTS:
        return pb.Status(code=code.name, message=code.name)
    return statuses[0]


def code_of(error: RoquetError) -> StatusCode:
    """The code of a request that ended with an error."""
    match error:
        case ProxyRefusal():
            return error.code
        case CallRefused():
            return REFUSED.get(error.code, StatusCode.INTERNAL_SERVER_ERROR)
        case CallTimeout() | ConnectFailed():
            return StatusCode.PROXY_TIMEOUT
        case NotFound():
            return StatusCode.NOT_FOUND
        case MessageIllegal() | FieldError() | UsageError():
            return StatusCode.BAD_REQUEST
        case _:
            return StatusCode.INTERNAL_SERVER_ERROR
