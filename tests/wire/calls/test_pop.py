"""Pop and its acknowledgements, compared with Java's headers and bodies."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import FieldError
from roquet.wire.calls import pop
from roquet.wire.command import ROCKETMQ, decode
from roquet.wire.fields import decode_call, encode_call
from roquet.wire.frame import FrameReader

BODIES = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "vectors" / "bodies.jsonl").read_text().splitlines()
]


def test_the_code_that_the_compact_form_cuts_is_read_whole() -> None:
    call = pop.PollingInfo(consumer_group="g", topic="t", queue_id=0)
    sent = encode_call(call, opaque=1, serialize_type=ROCKETMQ)
    (frame,) = FrameReader().feed(sent)
    assert (3447).to_bytes(2, "big") in frame
    command = decode(frame)
    assert command.code == 200_055
    assert decode_call(command, pop.PollingInfo) == call


@pytest.mark.parametrize(
    "text",
    [
        line["in"]["text"] if line["in"]["op"] == "decode" else line["out"]["text"]
        for line in BODIES
        if line["in"]["class"] == "BatchAckMessageRequestBody"
    ],
)
def test_batches_are_read_and_written_as_java_does(text: str) -> None:
    batch = pop.decode_acks(text.encode())
    assert pop.decode_acks(pop.encode_acks(batch)) == batch
    if batch.acks:
        assert json.loads(pop.encode_acks(batch)) == json.loads(text)


def test_a_message_of_a_batch_is_read_and_written_as_in_java() -> None:
    (text,) = (x["out"]["text"] for x in BODIES if x["in"]["class"] == "BatchAck")
    batch = pop.decode_acks(f'{{"acks":[{text}]}}'.encode())
    assert json.loads(pop.encode_acks(batch))["acks"] == [json.loads(text)]


def test_names_written_in_full_are_read_too() -> None:
    text = (
        b'{"brokerName":"b","acks":[{"consumerGroup":"g","topic":"T","retry":"1","startOffset":100,'
        b'"queueId":1,"reviveQueueId":2,"popTime":5,"invisibleTime":6,"bitSet":"BQ=="}]}'
    )
    (ack,) = pop.decode_acks(text).acks
    assert (ack.group, ack.retry, ack.start, pop.decode_bits(ack.bits)) == ("g", "1", 100, 5)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"acks":[{"c":"g"}]}', b'{"acks":[7]}', b'{"acks":"x"}', b"\xff"]
)
def test_a_body_that_is_no_batch_is_refused(body: bytes) -> None:
    with pytest.raises(FieldError):
        pop.decode_acks(body)


def test_bits_travel_as_javas_bit_set() -> None:
    assert pop.encode_bits(0b101) == "BQ=="
    assert pop.encode_bits(0) == ""
    assert pop.encode_bits(1 << 8) == "AAE="


@given(st.integers(0, 2**600))
def test_bits_come_back(bits: int) -> None:
    assert pop.decode_bits(pop.encode_bits(bits)) == bits


@pytest.mark.parametrize("text", ["?", "BQ", "A" * 4 * 8_192])
def test_malformed_bit_sets_are_refused(text: str) -> None:
    with pytest.raises(FieldError):
        pop.decode_bits(text)
