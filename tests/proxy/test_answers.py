"""Statuses of requests that ended with an error."""

import pytest

from roquet.model.errors import (
    CallRefused,
    CallTimeout,
    ConnectFailed,
    FieldError,
    NotFound,
    RoquetError,
    StoreFull,
)
from roquet.proxy.answers import code_of, common_status, status_of
from roquet.proxy.protos import definition_pb2 as pb
from roquet.rules.proxy.status import ProxyRefusal, StatusCode


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProxyRefusal(StatusCode.FORBIDDEN, "no"), StatusCode.FORBIDDEN),
        (CallRefused(2, "busy"), StatusCode.TOO_MANY_REQUESTS),
        (CallRefused(17, "no topic"), StatusCode.TOPIC_NOT_FOUND),
        (CallRefused(26, "no group"), StatusCode.CONSUMER_GROUP_NOT_FOUND),
        (CallRefused(1, "failed"), StatusCode.INTERNAL_SERVER_ERROR),
        (CallRefused(9_999, "a code of a later version"), StatusCode.INTERNAL_SERVER_ERROR),
        (CallTimeout("late"), StatusCode.PROXY_TIMEOUT),
        (ConnectFailed("away"), StatusCode.PROXY_TIMEOUT),
        (NotFound("no such group"), StatusCode.NOT_FOUND),
        (FieldError("bad"), StatusCode.BAD_REQUEST),
        (StoreFull("full"), StatusCode.INTERNAL_SERVER_ERROR),
    ],
)
def test_each_error_has_a_code_and_says_its_sentence(error: RoquetError, code: StatusCode) -> None:
    assert code_of(error) is code
    assert status_of(error) == pb.Status(code=code.name, message=str(error))


def test_results_that_differ_have_a_status_of_their_own() -> None:
    ok, late = pb.Status(code=pb.OK), pb.Status(code=pb.PROXY_TIMEOUT, message="too late")
    assert common_status([late, late]) == late
    assert common_status([ok, late]).code == pb.MULTIPLE_RESULTS
