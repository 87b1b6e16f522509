"""Refusals: the errors by which requests are refused, one function for each common code."""

from roquet.model.errors import CallRefused
from roquet.wire.codes import ResponseCode


def system_error(remark: str) -> CallRefused:
    """SYSTEM_ERROR: what Apache's broker answers where it has no code for a fault."""
    return CallRefused(ResponseCode.SYSTEM_ERROR, remark)


def invalid_parameter(remark: str) -> CallRefused:
    """INVALID_PARAMETER: a field of the request has no legal value."""
    return CallRefused(ResponseCode.INVALID_PARAMETER, remark)


def no_permission(remark: str) -> CallRefused:
    """NO_PERMISSION: the settings, a topic or a policy forbid it."""
    return CallRefused(ResponseCode.NO_PERMISSION, remark)


def no_topic(remark: str) -> CallRefused:
    """TOPIC_NOT_EXIST: there is no such topic on this broker."""
    return CallRefused(ResponseCode.TOPIC_NOT_EXIST, remark)


def no_group(remark: str) -> CallRefused:
    """SUBSCRIPTION_GROUP_NOT_EXIST: there is no such group on this broker."""
    return CallRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
