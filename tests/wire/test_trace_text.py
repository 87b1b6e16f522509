"""Trace records, against texts of Apache's encoder (5.5.0, TraceDataEncoder)."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.for_each import for_each
from tests.vector_lines import vector_lines

from roquet.wire.trace_text import (
    ConsumeEndTrace,
    ConsumeReturnType,
    ConsumeStartTrace,
    RecallTrace,
    SendTrace,
    Trace,
    TraceMessageType,
    TransactionTrace,
    decode,
    encode,
)

LINES = vector_lines("trace.jsonl")

TEXTS = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), max_size=20).filter(
    lambda text: text != "null"
)
NUMBERS = st.integers(0, 2**53)


@for_each(LINES)
def test_java_texts_are_read_and_written_back_to_the_byte(line: dict[str, Any]) -> None:
    vector, text = line["in"], line["out"]["text"]
    traces = decode(text)
    assert len(traces) == (vector["beans"] if vector["type"].startswith("Sub") else 1)
    if vector["keys"] != "":  # an empty text is sent as "null": Java could not always read it
        assert encode(traces) == text
    assert decode(encode(traces)) == traces


def one_of(name: str) -> Trace:
    line = next(n for n in LINES if n["in"]["type"] == name and n["in"]["keys"] == "k1 k2")
    return decode(line["out"]["text"])[0]


def test_every_part_has_its_name() -> None:
    assert one_of("Pub") == SendTrace(
        at_ms=1700000000000, region="DefaultRegion", group="group", topic="orders",
        message_id="ID0", tag="tagA", keys="k1 k2", store_host="127.0.0.1:10911", body_length=12,
        took_ms=7, kind=TraceMessageType.DELAYED,
        offset_message_id="7F00000100002A9F0000000000000010",
    )  # fmt: skip
    assert one_of("SubBefore") == ConsumeStartTrace(
        at_ms=1700000000000, region="DefaultRegion", group="group", request_id="REQ1",
        message_id="ID0", tries=2, keys="k1 k2",
    )  # fmt: skip
    assert one_of("SubAfter") == ConsumeEndTrace(
        request_id="REQ1", message_id="ID0", took_ms=7, keys="k1 k2",
        outcome=ConsumeReturnType.RETURNED_NOTHING, at_ms=1700000000000, group="group",
    )  # fmt: skip
    assert one_of("EndTransaction") == TransactionTrace(
        at_ms=1700000000000, region="DefaultRegion", group="group", topic="orders",
        message_id="ID0", tag="tagA", keys="k1 k2", store_host="127.0.0.1:10911",
        kind=TraceMessageType.DELAYED, transaction_id="TX1", state="COMMIT_MESSAGE",
        from_check=True,
    )  # fmt: skip
    assert one_of("Recall") == RecallTrace(
        at_ms=1700000000000, region="DefaultRegion", group="group", topic="orders",
        message_id="ID0",
    )  # fmt: skip


def test_records_of_older_clients_are_read() -> None:
    older = "Pub\x015\x01r\x01g\x01t\x01ID\x01\x01\x01h:1\x013\x011\x010\x01false\x02"
    assert decode(older) == [
        SendTrace(at_ms=5, region="r", group="g", topic="t", message_id="ID", store_host="h:1",
             body_length=3, took_ms=1, success=False)
    ]  # fmt: skip
    assert decode("SubAfter\x01R\x01ID\x014\x01true\x01k\x02") == [
        ConsumeEndTrace(request_id="R", message_id="ID", took_ms=4, keys="k")
    ]


def test_malformed_trace_records_are_left_out() -> None:
    good = encode([RecallTrace(at_ms=1, topic="t", message_id="ID")])
    assert len(decode(f"Pub\x01x\x02nonsense\x02{good}Pub\x015\x01r\x02SubBef")) == 1


def test_separators_in_a_value_break_nothing() -> None:
    (trace,) = decode(encode([RecallTrace(at_ms=1, topic="t", message_id="a\x01b\x02c")]))
    assert trace.message_id == "a b c"


SENDS = st.builds(
    SendTrace, at_ms=NUMBERS, region=TEXTS, group=TEXTS, topic=TEXTS, message_id=TEXTS, tag=TEXTS,
    keys=TEXTS, store_host=TEXTS, body_length=NUMBERS, took_ms=NUMBERS,
    kind=st.sampled_from(TraceMessageType), offset_message_id=TEXTS, success=st.booleans(),
)  # fmt: skip
STARTS = st.builds(
    ConsumeStartTrace, at_ms=NUMBERS, region=TEXTS, group=TEXTS, request_id=TEXTS, message_id=TEXTS,
    tries=NUMBERS, keys=TEXTS,
)  # fmt: skip
ENDS = st.builds(
    ConsumeEndTrace, request_id=TEXTS, message_id=TEXTS, took_ms=NUMBERS, success=st.booleans(),
    keys=TEXTS,
    outcome=st.sampled_from(ConsumeReturnType), at_ms=NUMBERS, group=TEXTS,
)  # fmt: skip


@given(st.lists(SENDS | STARTS | ENDS))
def test_written_values_are_read_back(traces: list[Trace]) -> None:
    assert decode(encode(traces)) == traces


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    assert len(decode(text)) <= text.count("\x02") + 1
