from collections.abc import Callable

import pytest

from roquet.broker import refusals
from roquet.model.errors import CallRefused
from roquet.wire.codes import ResponseCode


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (refusals.system_error, ResponseCode.SYSTEM_ERROR),
        (refusals.invalid_parameter, ResponseCode.INVALID_PARAMETER),
        (refusals.no_permission, ResponseCode.NO_PERMISSION),
        (refusals.no_topic, ResponseCode.TOPIC_NOT_EXIST),
        (refusals.no_group, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
def test_a_refusal_has_its_code_and_remark(
    refusal: Callable[[str], CallRefused], code: ResponseCode
) -> None:
    error = refusal("a remark")
    assert (error.code, error.remark) == (code, "a remark")
