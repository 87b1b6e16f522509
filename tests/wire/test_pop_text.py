import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import FieldError
from roquet.model.names import pop_retry_topic
from roquet.wire import pop_text
from roquet.wire.pop_text import Handle, decode_handle

LINES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "vectors" / "pop.jsonl").read_text().splitlines()
]


def lines(op: str) -> list[Any]:
    return [pytest.param(line["in"], line["out"]) for line in LINES if line["in"]["op"] == op]


@pytest.mark.parametrize(("given", "out"), lines("pop_extra_info"))
def test_a_handle_is_written_as_java_writes_it(given: dict[str, Any], out: str) -> None:
    handle = Handle(
        start=given["ck_offset"],
        pop_ms=given["pop_time"],
        invisible_ms=given["invisible_time"],
        revive_queue=given["revive_qid"],
        retry=pop_text.retry_kind(given["topic"]),
        broker=given["broker"],
        queue_id=given["queue_id"],
        offset=given["offset"],
    )
    assert handle.text() == out
    assert decode_handle(out) == handle


@pytest.mark.parametrize(("given", "out"), lines("pop_extra_info_parse"))
def test_a_handle_says_where_its_message_lies(given: dict[str, Any], out: dict[str, Any]) -> None:
    handle = decode_handle(given["text"])
    topic = pop_text.real_topic(given["topic"], given["group"], handle.retry)
    is_ordered = handle.revive_queue == pop_text.ORDER_QUEUE
    assert (topic, is_ordered, handle.retry, handle.offset) == (
        out["real_topic"], out["order"], out["retry"], out["queue_offset"],
    )  # fmt: skip


@pytest.mark.parametrize(("given", "out"), lines("pop_info"))
def test_what_a_reply_says_of_its_messages(given: dict[str, Any], out: dict[str, Any]) -> None:
    starts, offsets, counts = [], [], []
    for part in given["parts"]:
        topic, queue_id, start = part["topic"], part["queue_id"], part["start_offset"]
        starts.append(pop_text.start_info(topic, queue_id, start))
        offsets.append(pop_text.offset_info(topic, queue_id, part["offsets"]))
        counts.append(pop_text.queue_count_info(topic, queue_id, part["queue_count"]))
        counts.append(pop_text.offset_count_info(topic, queue_id, start, part["offset_count"]))
    assert ";".join(starts) == out["start_offset_info"]
    assert ";".join(offsets) == out["msg_offset_info"]
    assert ";".join(counts) == out["order_count_info"]
    assert pop_text.parse_starts(out["start_offset_info"]) == out["parsed_start"]
    assert pop_text.parse_offsets(out["msg_offset_info"]) == out["parsed_offsets"]
    assert pop_text.parse_starts(out["order_count_info"]) == out["parsed_counts"]


@pytest.mark.parametrize(("given", "out"), lines("pop_retry_topic"))
def test_the_retry_topic_has_its_genuine_name(given: dict[str, Any], out: dict[str, str]) -> None:
    assert pop_retry_topic(given["group"], given["topic"]) == out["v1"] == out["default"]
    assert pop_text.real_topic(given["topic"], given["group"], pop_text.RETRY_V2) == out["v2"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 2 3 4 0 b 5",
        "1 2 3 4 3 b 5 6",
        "x 2 3 4 0 b 5 6",
        "1 2 3 4 0 b 5 -6",
        "1 2 3 4 0 b 5 1_0",
        "1 2 3 4 0 b 5 \u0661",
        "9223372036854775808 2 3 4 0 b 5 6",
        "1  2 3 4 0 b 5 6",
    ],
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match="receipt handle"):
        decode_handle(text)


@given(
    st.builds(
        Handle,
        *[st.integers(0, 2**63 - 1)] * 4,
        st.sampled_from(["0", "1", "2"]),
        st.text(min_size=1).filter(lambda name: name.strip() == name),
        *[st.integers(0, 2**31 - 1)] * 2,
    )
)
def test_any_handle_comes_back(handle: Handle) -> None:
    assert decode_handle(handle.text()) == handle


@pytest.mark.parametrize(
    ("topic", "retry", "real"),
    [
        ("t", "0", "t"),
        ("t", "1", "%RETRY%g_t"),
        ("t", "2", "%RETRY%g+t"),
        ("%RETRY%g_t", "1", "%RETRY%g_t"),
    ],
)
def test_a_message_lies_in_the_topic_that_its_kind_says(topic: str, retry: str, real: str) -> None:
    assert pop_text.real_topic(topic, "g", retry) == real


def test_a_note_says_when_it_was_made() -> None:
    assert pop_text.note_properties("ck", 5) == b"TAGS\x01ck\x02TIMER_DELIVER_MS\x015\x02"


@pytest.mark.parametrize("text", ["", "0 1", "0 1 x", "0 1 1;", "0 1 2 3"])
def test_broken_information_is_refused(text: str) -> None:
    with pytest.raises(FieldError):
        pop_text.parse_starts(text)


def test_a_checkpoint_is_written_with_javas_names() -> None:
    body = pop_text.CheckpointBody(
        broker="b", group="g", steps=[0, 2], invisible_ms=60_000, count=2, pop_ms=5, queue_id=1,
        start=100, topic="t",
    )  # fmt: skip
    raw = pop_text.encode_body(body)
    assert json.loads(raw) == {
        "bn": "b", "c": "g", "d": [0, 2], "it": 60_000, "n": 2, "pt": 5, "q": 1, "so": 100,
        "t": "t",
    }  # fmt: skip
    assert pop_text.decode_checkpoint(raw) == body
    assert list(body.offsets()) == [100, 102]


def test_a_checkpoint_without_steps_holds_messages_one_behind_the_other() -> None:
    raw = b'{"so":7,"pt":1,"it":1,"bm":0,"n":3,"q":0,"t":"t","c":"g","ro":9,"rp":"1"}'
    assert list(pop_text.decode_checkpoint(raw).offsets()) == [7, 8, 9]


@pytest.mark.parametrize(
    "changes",
    [
        {"so": -1}, {"n": 0}, {"n": 10**6}, {"d": [0]}, {"d": [0, 10**9]}, {"d": [-1, 0]},
        {"it": 0}, {"pt": -1}, {"q": -1}, {"it": "x"}, {"c": None},
    ],
)  # fmt: skip
def test_a_checkpoint_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    fields = {"so": 7, "pt": 1, "it": 1, "n": 2, "q": 0, "t": "t", "c": "g", "d": [0, 1]}
    with pytest.raises(FieldError):
        pop_text.decode_checkpoint(json.dumps(fields | changes).encode())


def test_an_acknowledgement_is_written_with_javas_names() -> None:
    one = pop_text.AckBody(
        offset=9, broker="b", group="g", pop_ms=5, queue_id=1, start=7, topic="t"
    )
    assert json.loads(pop_text.encode_body(one)) == {
        "ao": 9, "bn": "b", "c": "g", "pt": 5, "q": 1, "so": 7, "t": "t",
    }  # fmt: skip
    assert pop_text.decode_ack(pop_text.encode_body(one)) == one
    with pytest.raises(FieldError):
        pop_text.decode_ack(b"[]")
