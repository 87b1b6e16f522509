import pytest

from roquet.model.queue import MessageQueue
from roquet.model.results import PullResult, PullStatus, ReplyMessage, SendReceipt, SendStatus


def receipt(status: SendStatus) -> SendReceipt:
    return SendReceipt(
        status=status,
        message_id="7F0000010001",
        offset_message_id="0A00000100002A9F0000000000000000",
        queue=MessageQueue("orders", "broker-a", 0),
        queue_offset=0,
    )


def test_a_kept_promise_is_ok() -> None:
    assert receipt(SendStatus.SEND_OK).ok


@pytest.mark.parametrize("status", [status for status in SendStatus if status.name != "SEND_OK"])
def test_stored_but_not_yet_as_durable_as_promised_is_not_ok(status: SendStatus) -> None:
    assert not receipt(status).ok


def test_a_pull_that_found_nothing_says_where_to_go_on() -> None:
    result = PullResult(status=PullStatus.NO_NEW, next_offset=7, min_offset=0, max_offset=7)
    assert result.messages == ()
    assert result.next_offset == 7


def test_a_reply_has_its_own_id_and_that_of_its_request() -> None:
    reply = ReplyMessage(body=b"", properties={"UNIQ_KEY": "7F01", "CORRELATION_ID": "c1"})
    assert (reply.message_id, reply.correlation_id) == ("7F01", "c1")
    nothing = ReplyMessage(body=b"", properties={})
    assert (nothing.message_id, nothing.correlation_id) == ("", "")
