"""Receipt handles as clients hold them."""

import pytest

from roquet.proxy.receipts import decode_receipt
from roquet.rules.proxy.status import ProxyRefusal, StatusCode

# From vectors/grpc/statuses.jsonl.
RECORDED = "6 1795365656894 20000 7 0 broker-a 1 6 8582690"


def test_a_recorded_handle_is_read_and_written() -> None:
    receipt = decode_receipt(RECORDED)
    assert receipt.position == 8_582_690
    assert (receipt.handle.broker, receipt.handle.queue_id, receipt.handle.offset) == (
        "broker-a", 1, 6,
    )  # fmt: skip
    assert receipt.text() == RECORDED


def test_a_brokers_own_handle_has_no_position() -> None:
    assert decode_receipt(RECORDED.rpartition(" ")[0]).position == -1


def test_a_broker_with_blanks_in_its_name_is_read() -> None:
    receipt = decode_receipt("6 1795365656894 20000 7 0 my broker 1 6 8582690")
    assert (receipt.handle.broker, receipt.position) == ("my broker", 8_582_690)


@pytest.mark.parametrize("text", ["", "a b", "garbage", RECORDED.replace(" 0 ", " 9 ")])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ProxyRefusal) as caught:
        decode_receipt(text)
    assert caught.value.code is StatusCode.INVALID_RECEIPT_HANDLE


def test_a_message_is_held_until_its_invisible_time_is_over() -> None:
    receipt = decode_receipt(RECORDED)
    receipt.check_held(1_795_365_676_893)
    with pytest.raises(ProxyRefusal):
        receipt.check_held(1_795_365_676_894)
