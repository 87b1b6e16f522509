"""Send, alone and in batches, with both sets of field names; send back."""

import pytest

from roquet.wire.calls.send import STORED_CODES, Send, SendBatch, SendLongNames, SendReply
from roquet.wire.codes import ResponseCode
from roquet.wire.command import Command
from roquet.wire.fields import HEADER_CODECS, decode_call, to_ext


def test_handlers_see_the_same_attributes_under_both_sets_of_names() -> None:
    short = {field.name for field in HEADER_CODECS[Send].fields}
    assert short - {field.name for field in HEADER_CODECS[SendLongNames].fields} == {"broker_name"}


@pytest.mark.parametrize(
    ("text", "batch"), [("1", True), ("0", False), ("true", True), ("", False)]
)
def test_a_batch_of_the_cpp_client_is_a_batch(text: str, batch: bool) -> None:
    ext = {"a": "g", "b": "t", "e": "0", "g": "1", "m": text}
    assert decode_call(Command(310, fields=ext), Send).batch is batch


def test_a_batch_request_is_a_batch_if_its_field_says_so_as_in_java() -> None:
    ext = {"a": "g", "b": "t", "e": "0", "g": "1"}
    assert not decode_call(Command(320, fields=ext), SendBatch).batch
    assert decode_call(Command(320, fields=ext | {"m": "true"}), SendBatch).batch


def test_control_characters_between_properties_survive() -> None:
    call = Send(
        producer_group="g", topic="t", queue_id=0, born_timestamp=1, properties="a\x01b\x02"
    )
    assert decode_call(Command(310, fields=to_ext(call)), Send) == call


def test_every_reply_names_region_and_trace_as_clients_expect() -> None:
    ext = to_ext(SendReply())
    assert (ext["MSG_REGION"], ext["TRACE_ON"]) == ("DefaultRegion", "true")


def test_a_message_that_is_not_yet_as_durable_as_promised_is_stored() -> None:
    assert {ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE} < STORED_CODES
    assert ResponseCode.SERVICE_NOT_AVAILABLE not in STORED_CODES
