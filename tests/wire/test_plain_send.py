"""Plain sends are read as the ordinary way reads them, or not at all."""

import json
from inspect import unwrap
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roquet.broker.ingest.property_normalizer import plain_facts
from roquet.model.properties import PRIORITY
from roquet.wire.calls.send import Send, SendBatch, SendLongNames
from roquet.wire.codes import Language, SerializeType
from roquet.wire.command import Command, decode
from roquet.wire.fields import decode_call, encode_call, to_ext
from roquet.wire.plain_send import PlainSend, batch_reply, plain_sends, stored_reply
from roquet.wire.records.property_text import decode_properties, encode_properties
from roquet.wire.records.record import ENTRY
from roquet.wire.records.speedups import COMPILED, use_compiled

pytestmark = pytest.mark.skipif(not COMPILED, reason="without a compiler there are none")

SIZE_MAX = 1 << 24
FORMS = (SerializeType.JSON, SerializeType.ROCKETMQ)
GONE = "left out"
"""Value of a field that is left out."""

PROPERTIES = "UNIQ_KEY\x017F01\x02TAGS\x01red\x02WAIT\x01true\x02"

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 5)


def make(**fields: Any) -> Send:
    given_: dict[str, Any] = {
        "producer_group": "g", "topic": "T", "queue_id": 3, "born_timestamp": 1_700_000_000_000,
        "properties": PROPERTIES, "body": b"body",
    }  # fmt: skip
    return Send(**given_ | fields)


def frame(call: Send | SendLongNames, form: int = SerializeType.JSON, **options: Any) -> bytes:
    return encode_call(call, opaque=7, serialize_type=form, **options)


def kept(parts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parts.items() if value != GONE}


def with_header(changed: dict[str, Any], fields: dict[str, Any]) -> bytes:
    """The frame of a send whose JSON header somebody else has written."""
    raw = frame(make())
    size = int.from_bytes(raw[4:8])
    header = json.loads(raw[8 : 8 + size])
    header["extFields"] = kept(header["extFields"] | fields)
    header = kept(header | changed)
    text = json.dumps(header, separators=(",", ":")).encode()
    rest = raw[8 + size :]
    return (4 + len(text) + len(rest)).to_bytes(4) + len(text).to_bytes(4) + text + rest


def read_as_usual(raw: bytes, end: int = 0) -> PlainSend:
    """The same request by command and call, as every other one is read."""
    command = decode(raw[4:])
    call = decode_call(command, Send)
    text = call.properties.encode("utf-8", "surrogatepass")
    facts = (0, True, b"") if call.batch else plain_facts(text)
    assert facts is not None
    if call.batch:
        shared = decode_properties(text)
        shared.pop("UNIQ_KEY", None)
        text = encode_properties(shared)
    fields = command.fields
    return PlainSend(
        opaque=command.opaque,
        serialize_type=command.serialize_type,
        language=command.language,
        version=command.version,
        topic=call.topic,
        queue_id=call.queue_id,
        sys_flag=call.sys_flag,
        born_timestamp=call.born_timestamp,
        flag=call.flag,
        reconsume_times=call.reconsume_times,
        properties=text,
        tag_code=facts[0],
        unique_key=facts[2].decode(),
        fields=bytes(fields) if isinstance(fields, msgspec.Raw) else fields.pairs,  # type: ignore[union-attr]
        body=call.body,
        end=end or len(raw),
        code=command.code,
        is_batch=call.batch,
    )


@pytest.mark.parametrize("form", FORMS)
def test_an_ordinary_send_is_read_in_one_pass(form: int) -> None:
    raw = frame(make(reconsume_times=2, flag=5, sys_flag=1), form, language=Language.GO)
    assert plain_sends(raw, SIZE_MAX) == [read_as_usual(raw)]


@given(
    form=st.sampled_from(FORMS),
    fields=st.fixed_dictionaries(
        {},
        optional={
            "producer_group": TEXTS, "topic": TEXTS, "default_topic": TEXTS, "queue_id": NUMBERS,
            "default_topic_queue_nums": NUMBERS, "sys_flag": NUMBERS, "flag": NUMBERS,
            "born_timestamp": st.integers(-2, 2**63 - 1), "reconsume_times": NUMBERS,
            "unit_mode": st.booleans(), "max_reconsume_times": st.none() | NUMBERS,
            "broker_name": st.none() | TEXTS, "batch": st.booleans(),
            "properties": TEXTS | TEXTS.map((PROPERTIES + "KEYS\x01{}\x02").format),
            "body": st.binary(max_size=20),
        },
    ),
    number=st.integers(0, 3),
)  # fmt: skip
@example(SerializeType.JSON, {"properties": PROPERTIES + 'KEYS\x01é"\\\x02'}, 1)
@example(SerializeType.ROCKETMQ, {"properties": PROPERTIES + "KEYS\x01é\x02", "topic": "é"}, 2)
def test_what_is_found_is_what_the_ordinary_way_reads(
    form: int, fields: dict[str, Any], number: int
) -> None:
    raw, plain = frame(make(**fields), form), frame(make(), form)
    found = plain_sends(plain * number + raw, SIZE_MAX)
    assert found[:number] == [read_as_usual(plain, len(plain) * (n + 1)) for n in range(number)]
    if len(found) > number:
        assert found[number:] == [read_as_usual(raw, len(plain) * number + len(raw))]


BATCH_PROPERTIES = ("", "WAIT\x01true\x02", "a\x01b\x02UNIQ_KEY\x017F01\x02", "DELAY\x013\x02")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("properties", BATCH_PROPERTIES, ids=ascii)
@pytest.mark.parametrize("kind", [Send, SendBatch])
def test_a_batch_is_read_in_one_pass(form: int, properties: str, kind: type[Send]) -> None:
    call = kind(**to_fields(make(batch=True, properties=properties)))
    raw = frame(call, form)
    assert plain_sends(raw, SIZE_MAX) == [read_as_usual(raw)]


@pytest.mark.parametrize("form", FORMS)
def test_a_frame_that_is_cut_ends_them(form: int) -> None:
    raw = frame(make(), form)
    for size in range(len(raw)):
        assert len(plain_sends(raw + raw[:size], SIZE_MAX)) == 1
    assert plain_sends(b"", SIZE_MAX) == []
    assert plain_sends(raw + b"\0\0\0\0", SIZE_MAX) == [read_as_usual(raw)]


def test_a_frame_over_the_limit_is_left() -> None:
    raw = frame(make())
    assert plain_sends(raw, len(raw) - 4) == [read_as_usual(raw)]
    assert plain_sends(raw, len(raw) - 5) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "fields",
    [
        {"batch": True, "properties": "torn"},
        {"batch": True, "properties": "a\x01\x02"},
        {"batch": True, "properties": "a\x01b\x01c\x02"},
        {"batch": True, "properties": "a\x01b\x02a\x01c\x02"},
        {"batch": True, "properties": "a\x01é\x02"},
        {"batch": True, "properties": "".join(f"a{n}\x01b\x02" for n in range(9))},
        {"properties": ""},
        {"properties": "TAGS\x01red\x02"},
        {"properties": PROPERTIES + "DELAY\x013\x02"},
        {"properties": PROPERTIES + "TIMER_DELAY_MS\x013\x02"},
        {"properties": PROPERTIES + "TRAN_MSG\x01true\x02"},
        {"properties": PROPERTIES + "POP_CK\x01x\x02"},
        {"properties": PROPERTIES + f"{PRIORITY}\x013\x02"},
        {"properties": PROPERTIES + "torn"},
        {"properties": PROPERTIES + "\x01\x02"},
        {"properties": "UNIQ_KEY\x01é\x02"},
        {"born_timestamp": -1},
    ],
)
def test_a_message_that_asks_for_more_is_left(form: int, fields: dict[str, Any]) -> None:
    assert plain_sends(frame(make(**fields), form), SIZE_MAX) == []


@pytest.mark.parametrize("form", FORMS)
def test_other_requests_are_left(form: int) -> None:
    others = [
        frame(make(), form, oneway=True),
        frame(SendBatch(**to_fields(make())), form),
        frame(SendLongNames(**to_fields(make())), form),
    ]
    for raw in others:
        assert plain_sends(raw, SIZE_MAX) == []


def to_fields(send: Send) -> dict[str, Any]:
    names = SendLongNames.__struct_fields__
    return {name: getattr(send, name) for name in Send.__struct_fields__ if name in names}


ODD_FIELDS = (
    *({"a": GONE}, {"b": GONE}, {"e": GONE}, {"g": GONE}, {"i": GONE}, {"e": 3}, {"e": "03"}),
    *({"e": "+3"}, {"e": "2147483648"}, {"f": "null"}, {"g": "1e9"}, {"g": "01"}, {"g": ""}),
    *({"g": "9" * 19}, {"k": "TRUE"}, {"m": "TRUE"}, {"d": "many"}, {"l": ""}),
    {"i": PROPERTIES + "KEYS\x01\ud800\x02"},
)
ODD_HEADERS = (
    *({"flag": 1}, {"remark": "x"}, {"code": 10}, {"other": 1}, {"extFields": None}),
    {"extFields": GONE},
)


@pytest.mark.parametrize("header", ODD_HEADERS, ids=str)
def test_headers_that_nobody_writes_so_are_left(header: dict[str, Any]) -> None:
    assert plain_sends(with_header(header, {}), SIZE_MAX) == []


@pytest.mark.parametrize("fields", ODD_FIELDS, ids=ascii)
def test_fields_that_nobody_writes_so_are_left(fields: dict[str, Any]) -> None:
    assert plain_sends(with_header({}, fields), SIZE_MAX) == []


def test_a_field_that_is_given_twice_leaves_the_request() -> None:
    raw = frame(make()).replace(b'"e":"3"', b'"e":"3","e":"4"')
    size, head = int.from_bytes(raw[:4]) + 8, int.from_bytes(raw[4:8]) + 8
    assert plain_sends(size.to_bytes(4) + head.to_bytes(4) + raw[8:], SIZE_MAX) == []


def test_fields_that_sends_do_not_have_are_passed_over() -> None:
    raw = with_header({}, {"AccessKey": "k", "z": "1"})
    assert plain_sends(raw, SIZE_MAX) == [read_as_usual(raw)]


def test_the_fields_are_kept_as_they_are_signed() -> None:
    json_send, compact_send = (plain_sends(frame(make(), form), SIZE_MAX)[0] for form in FORMS)
    for send in (json_send, compact_send):
        command = Command(310, fields=send.signed_fields)
        assert command.ext == {n: v for n, v in to_ext(make()).items() if v}


def test_without_compiled_forms_none_is_found() -> None:
    before = use_compiled(False)
    try:
        assert plain_sends(frame(make()), SIZE_MAX) == []
    finally:
        use_compiled(before)


@given(
    opaque=st.integers(-(2**31), 2**31 - 1),
    form=st.sampled_from(FORMS),
    host=st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20),
    numbers=st.tuples(st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.integers(0, 2**62)),
    key=TEXTS | st.just("7F01" * 8) | st.just("k" * 9_000),
    region=TEXTS | st.just("DefaultRegion") | st.just("\ud800"),
    trace_on=st.booleans(),
)
def test_replies_are_those_of_the_ordinary_way(
    opaque: int, form: int, host: bytes, numbers: tuple[int, int, int], key: str, region: str,
    trace_on: bool,
) -> None:  # fmt: skip
    position, queue_id, offset = numbers
    given_ = (opaque, int(form), host, position, queue_id, offset, key, region, trace_on)
    usual: Any = unwrap(stored_reply)
    assert stored_reply(*given_) == usual(*given_)


@given(
    opaque=st.integers(-(2**31), 2**31 - 1),
    form=st.sampled_from(FORMS),
    host=st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20),
    positions=st.lists(st.integers(0, 2**62), min_size=1, max_size=40)
    | st.integers(100, 140).map(lambda count: list(range(count))),
    numbers=st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**62)),
    region=TEXTS | st.just("\ud800"),
    trace_on=st.booleans(),
)
def test_replies_to_batches_are_those_of_the_ordinary_way(
    opaque: int, form: int, host: bytes, positions: list[int],
    numbers: tuple[int, int], region: str, trace_on: bool,
) -> None:  # fmt: skip
    entries = b"".join([ENTRY.pack(position, 100, 7) for position in positions])
    given_ = (opaque, int(form), host, entries, *numbers, region, trace_on)
    usual: Any = unwrap(batch_reply)
    assert batch_reply(*given_) == usual(*given_)
