import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import CallError, CallRefused, CallTimeout, ConnectFailed, ConnectionLost
from roquet.rules import send_retry
from roquet.rules import send_retry as rules
from roquet.wire.calls.send import STORED_CODES
from roquet.wire.codes import ResponseCode

NAMES = {
    "NOT_DONE": "SYSTEM_BUSY SERVICE_NOT_AVAILABLE GO_AWAY",
    "TRANSIENT": "SYSTEM_ERROR SYSTEM_BUSY SERVICE_NOT_AVAILABLE GO_AWAY",
    "LESS_DURABLE": "FLUSH_DISK_TIMEOUT SLAVE_NOT_AVAILABLE FLUSH_SLAVE_TIMEOUT",
    "OTHER_BROKER": "NO_PERMISSION TOPIC_NOT_EXIST NO_BUYER_ID NOT_IN_CURRENT_UNIT",
    "STALE_QUEUE": "INVALID_PARAMETER",
    "STALE_ROUTE": "INVALID_PARAMETER TOPIC_NOT_EXIST",
}


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_are_those_of_the_wire(name: str) -> None:
    assert getattr(send_retry, name) == {ResponseCode[one] for one in NAMES[name].split()}


CODES = st.sampled_from(ResponseCode)
CODE_SETS = st.frozensets(CODES)
NETWORK = [CallError("x", definite=True), CallTimeout("x"), ConnectFailed("x"), ConnectionLost("x")]


@pytest.mark.parametrize("error", NETWORK, ids=lambda one: type(one).__name__)
def test_a_failure_of_the_network_is_retried_at_any_broker_by_a_fresh_route(
    error: CallError,
) -> None:
    assert rules.retry_of(error) is rules.Retry.ANY_BROKER
    assert rules.is_retryable(error)
    assert rules.needs_fresh_route(error)


def test_each_refusal_has_one_answer() -> None:
    by_retry = {
        retry: {code for code in ResponseCode if rules.retry_of(CallRefused(code)) is retry}
        for retry in rules.Retry
    }
    assert by_retry[rules.Retry.ANY_BROKER] == send_retry.TRANSIENT
    assert by_retry[rules.Retry.OTHER_BROKER] == send_retry.OTHER_BROKER
    assert by_retry[rules.Retry.FRESH_ROUTE] == send_retry.STALE_QUEUE
    assert ResponseCode.MESSAGE_ILLEGAL in by_retry[rules.Retry.NOWHERE]


def test_exactly_these_refusals_are_tried_again() -> None:
    java = {17, 14, 1, 2, 16, 204, 205}  # DefaultMQProducer.retryResponseCodes
    retryable = {code for code in ResponseCode if rules.is_retryable(CallRefused(code))}
    assert retryable == java | {1500}  # and GO_AWAY, which its remoting client tries again


def test_a_route_is_doubted_when_a_broker_lacks_topic_or_queue() -> None:
    doubted = {code for code in ResponseCode if rules.needs_fresh_route(CallRefused(code))}
    assert doubted == {ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER}


def test_less_durable_statuses_are_those_of_stored_messages() -> None:
    assert STORED_CODES - {ResponseCode.SUCCESS} == send_retry.LESS_DURABLE
    assert send_retry.LESS_DURABLE.isdisjoint(send_retry.TRANSIENT), "no refusals to the client"


@given(CODES, CODE_SETS)
def test_a_caller_says_which_refusals_are_transient(
    code: ResponseCode, transient: frozenset[int]
) -> None:
    refusal = CallRefused(code)
    assert rules.is_transient(refusal, transient) == (code in transient)
    assert rules.is_transient(refusal) == (code in send_retry.TRANSIENT)


@given(CODES, CODE_SETS)
def test_a_refusal_that_is_not_transient_has_the_same_answer_for_every_caller(
    code: ResponseCode, transient: frozenset[int]
) -> None:
    refusal = CallRefused(code)
    here, default = rules.retry_of(refusal, transient), rules.retry_of(refusal)
    assert here is default or rules.Retry.ANY_BROKER in (here, default)


@given(st.sampled_from(NETWORK), CODE_SETS)
def test_a_failure_of_the_network_is_transient_for_every_caller(
    error: CallError, transient: frozenset[int]
) -> None:
    assert rules.is_transient(error, transient)


def test_a_broker_with_replicas_may_be_the_master_no_more() -> None:
    doubted = {
        c for c in ResponseCode if rules.needs_fresh_route(CallRefused(c), has_replicas=True)
    }
    assert doubted == send_retry.TRANSIENT | send_retry.STALE_ROUTE
    assert all(rules.may_be_failover(CallRefused(code)) for code in send_retry.TRANSIENT)
    assert all(rules.may_be_failover(error) for error in NETWORK)
    assert not rules.may_be_failover(CallRefused(ResponseCode.MESSAGE_ILLEGAL))
