"""Statuses of requests."""

from roquet.rules.proxy.status import ProxyRefusal, StatusCode, common_code


def test_entries_with_one_code_have_it_in_common() -> None:
    assert common_code([StatusCode.OK, StatusCode.OK]) is StatusCode.OK
    mixed = common_code([StatusCode.OK, StatusCode.INVALID_RECEIPT_HANDLE])
    assert mixed is StatusCode.MULTIPLE_RESULTS


def test_a_refusal_says_its_sentence() -> None:
    assert str(ProxyRefusal(StatusCode.FORBIDDEN, "not this one")) == "not this one"
