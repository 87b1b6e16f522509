"""Which failed sends are tried again, and when."""

from itertools import islice

import pytest

from roquet.model.errors import CallError, CallRefused, CallTimeout, ConnectFailed, ConnectionLost
from roquet.rules import send_retry
from roquet.rules.send_retry import Retry, backoff_ms, is_retryable, needs_fresh_route, retry_of
from roquet.wire.codes import ResponseCode

NAMES = {
    "NOT_DONE": "SYSTEM_BUSY SERVICE_NOT_AVAILABLE GO_AWAY",
    "TRANSIENT": "SYSTEM_ERROR SYSTEM_BUSY SERVICE_NOT_AVAILABLE GO_AWAY",
    "OTHER_BROKER": "NO_PERMISSION TOPIC_NOT_EXIST NO_BUYER_ID NOT_IN_CURRENT_UNIT",
    "STALE_QUEUE": "INVALID_PARAMETER",
    "STALE_ROUTE": "INVALID_PARAMETER TOPIC_NOT_EXIST",
}


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_are_those_of_the_wire(name: str) -> None:
    assert getattr(send_retry, name) == {ResponseCode[one] for one in NAMES[name].split()}


NETWORK = [CallError("x", definite=True), CallTimeout("x"), ConnectFailed("x"), ConnectionLost("x")]


@pytest.mark.parametrize("error", NETWORK, ids=lambda one: type(one).__name__)
def test_a_failure_of_the_network_is_retried_at_any_broker_by_a_fresh_route(
    error: CallError,
) -> None:
    assert retry_of(error) is Retry.ANY_BROKER
    assert is_retryable(error)
    assert needs_fresh_route(error)


def test_each_refusal_has_one_answer() -> None:
    by_retry = {
        retry: {code for code in ResponseCode if retry_of(CallRefused(code)) is retry}
        for retry in Retry
    }
    assert by_retry[Retry.ANY_BROKER] == send_retry.TRANSIENT
    assert by_retry[Retry.OTHER_BROKER] == send_retry.OTHER_BROKER
    assert by_retry[Retry.FRESH_ROUTE] == send_retry.STALE_QUEUE
    assert ResponseCode.MESSAGE_ILLEGAL in by_retry[Retry.NOWHERE]


def test_exactly_these_refusals_are_tried_again() -> None:
    java = {17, 14, 1, 2, 16, 204, 205}  # DefaultMQProducer.retryResponseCodes
    retryable = {code for code in ResponseCode if is_retryable(CallRefused(code))}
    assert retryable == java | {1500}  # and GO_AWAY, which its remoting client tries again


def test_a_route_is_doubted_when_a_broker_lacks_topic_or_queue() -> None:
    doubted = {code for code in ResponseCode if needs_fresh_route(CallRefused(code))}
    assert doubted == {ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER}


def test_each_pause_is_twice_the_one_before() -> None:
    assert list(islice(backoff_ms(100), 4)) == [100, 200, 400, 800]
