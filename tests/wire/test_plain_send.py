"""Plain sends are read as the ordinary way reads them, or not at all."""

import json
from inspect import unwrap
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roquet.model.properties import PRIORITY
from roquet.wire.calls.send import Send, SendBatch, SendLongNames
from roquet.wire.codes import Language, SerializeType
from roquet.wire.command import decode
from roquet.wire.fields import encode_call, to_ext
from roquet.wire.plain_send import PlainSend, batch_reply, plain_sends, put_send, stored_reply
from roquet.wire.records.record import ENTRY
from roquet.wire.records.speedups import COMPILED, use_compiled
from roquet.wire.signing import Credentials, Signer, SigningKey
from usual_requests import Keys, usual_send

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


def found_in(chunk: bytes, size_max: int = SIZE_MAX, keys: Keys = None) -> list[PlainSend]:
    """The plain sends that the compiled reader finds, as values that can be compared."""
    names = PlainSend.__struct_fields__
    found = plain_sends(chunk, size_max, keys)
    return [PlainSend(*[getattr(send, name) for name in names]) for send in found]


@pytest.mark.parametrize("form", FORMS)
def test_an_ordinary_send_is_read_in_one_pass(form: int) -> None:
    raw = frame(make(reconsume_times=2, flag=5, sys_flag=1), form, language=Language.GO)
    assert found_in(raw) == [usual_send(raw)]
    (send,) = plain_sends(raw, SIZE_MAX, None)
    assert send.body_size == usual_send(raw).body_size == len(send.body)


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
    found = found_in(plain * number + raw)
    assert found[:number] == [usual_send(plain, len(plain) * (n + 1)) for n in range(number)]
    if len(found) > number:
        assert found[number:] == [usual_send(raw, len(plain) * number + len(raw))]


BATCH_PROPERTIES = ("", "WAIT\x01true\x02", "a\x01b\x02UNIQ_KEY\x017F01\x02", "DELAY\x013\x02")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("properties", BATCH_PROPERTIES, ids=ascii)
@pytest.mark.parametrize("kind", [Send, SendBatch])
def test_a_batch_is_read_in_one_pass(form: int, properties: str, kind: type[Send]) -> None:
    call = kind(**to_fields(make(batch=True, properties=properties)))
    raw = frame(call, form)
    assert found_in(raw) == [usual_send(raw)]


@pytest.mark.parametrize("form", FORMS)
def test_a_frame_that_is_cut_ends_them(form: int) -> None:
    raw = frame(make(), form)
    for size in range(len(raw)):
        assert len(found_in(raw + raw[:size])) == 1
    assert found_in(b"") == []
    assert found_in(raw + b"\0\0\0\0") == [usual_send(raw)]


def test_a_frame_over_the_limit_is_left() -> None:
    raw = frame(make())
    assert found_in(raw, len(raw) - 4) == [usual_send(raw)]
    assert found_in(raw, len(raw) - 5) == []


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
        {"body": b""},
        {"sys_flag": 4},
        {"sys_flag": 8 | 1},
        {"topic": ""},
        {"topic": "%RETRY%billing"},
    ],
)
def test_a_message_that_asks_for_more_is_left(form: int, fields: dict[str, Any]) -> None:
    assert found_in(frame(make(**fields), form)) == []


@pytest.mark.parametrize("form", FORMS)
def test_other_requests_are_left(form: int) -> None:
    others = [
        frame(make(), form, oneway=True),
        frame(SendBatch(**to_fields(make())), form),
        frame(SendLongNames(**to_fields(make())), form),
    ]
    for raw in others:
        assert found_in(raw) == []


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
    assert found_in(with_header(header, {})) == []


@pytest.mark.parametrize("fields", ODD_FIELDS, ids=ascii)
def test_fields_that_nobody_writes_so_are_left(fields: dict[str, Any]) -> None:
    assert found_in(with_header({}, fields)) == []


def resized(raw: bytes, part: bytes, other: bytes) -> bytes:
    """A frame with another part of its JSON header."""
    assert part in raw
    size, head = (int.from_bytes(raw[at : at + 4]) + len(other) - len(part) for at in (0, 4))
    return size.to_bytes(4) + head.to_bytes(4) + raw[8:].replace(part, other)


def test_a_field_that_is_given_twice_leaves_the_request() -> None:
    assert found_in(resized(frame(make()), b'"e":"3"', b'"e":"3","e":"4"')) == []


def test_fields_that_sends_do_not_have_are_passed_over() -> None:
    raw = with_header({}, {"AccessKey": "k", "z": "1"})
    assert found_in(raw) == [usual_send(raw)]


ALICE = SigningKey("secret of alice", "alice")
KEYS: Keys = {"alice": ALICE, "bob": SigningKey("secret of bob", "bob")}


def signed(call: Send, form: int, secret: str = "secret of alice", user: str = "alice") -> bytes:
    signer = Signer(Credentials(access_key=user, secret_key=secret))
    return signer.encode_call(call, opaque=7, serialize_type=form)


@pytest.mark.parametrize("form", FORMS)
@given(body=st.binary(max_size=200), topic=TEXTS.filter(bool), key=TEXTS)
@example(body=b"x" * 2_000, topic="T", key='é"\\/')
def test_a_signed_send_has_the_key_that_has_signed_it(
    form: int, body: bytes, topic: str, key: str
) -> None:
    raw = signed(make(body=body, topic=topic, properties=f"{PROPERTIES}KEYS\x01{key}\x02"), form)
    sends = found_in(raw, keys=KEYS)
    if sends:
        assert sends == [usual_send(raw, keys=KEYS)]
        assert sends[0].key is ALICE
    if body:
        assert found_in(raw[:-1] + bytes([raw[-1] ^ 1]), keys=KEYS) == []


@pytest.mark.parametrize("form", FORMS)
def test_where_signatures_count_a_send_that_no_known_key_has_signed_is_left(form: int) -> None:
    good = signed(make(), form)
    unknown = signed(make(), form, user="eve")
    assert found_in(unknown + good, keys=KEYS) == []
    for bad in (
        signed(make(), form, "guessed"),
        frame(make(), form),
        signed(make(), form, user="bob"),
    ):
        assert found_in(good + bad + good, keys=KEYS) == [usual_send(good, keys=KEYS)]
    assert found_in(good, keys={}) == []
    assert [send.key for send in found_in(good)] == [None]


def test_an_escaped_signature_is_read_and_one_that_is_given_twice_is_left() -> None:
    raw = signed(make(), SerializeType.JSON)
    fields = decode(raw[4:]).ext
    proof = f'"Signature":"{fields["Signature"]}"'.encode()
    escaped = b'"Signature":"' + b"".join(b"\\u%04x" % c for c in fields["Signature"].encode())
    for changed, keys in ((escaped + b'"', [ALICE]), (proof + b"," + proof, [])):
        assert [send.key for send in found_in(resized(raw, proof, changed), keys=KEYS)] == keys


def test_a_send_whose_signature_depends_on_the_clients_version_is_left() -> None:
    fields = {**to_ext(make()), "_UNIQUE_KEY_QUERY": "true", "AccessKey": "alice"}
    proof = ALICE.signature(fields, b"body")
    raw = with_header({}, {**fields, "Signature": proof})
    assert found_in(raw, keys=KEYS) == []
    assert found_in(raw) == [usual_send(raw)]


def test_without_compiled_forms_none_is_found() -> None:
    before = use_compiled(False)
    try:
        assert found_in(frame(make())) == []
    finally:
        use_compiled(before)


def make_plain(form: int = SerializeType.JSON, opaque: int = 7, **fields: Any) -> PlainSend:
    """A plain send as the compiled reader gives it."""
    raw = encode_call(make(**fields), opaque=opaque, serialize_type=form)
    (send,) = plain_sends(raw, SIZE_MAX, None)
    return send


ASCII = st.text(
    st.characters(codec="ascii", exclude_characters="\x01\x02\x7f"), min_size=1, max_size=8
)


@given(
    opaque=st.integers(-(2**31), 2**31 - 1),
    form=st.sampled_from(FORMS),
    host=st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20),
    numbers=st.tuples(st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.integers(0, 2**62)),
    key=ASCII | st.just("7F01" * 8) | st.just("k" * 9_000),
    region=TEXTS | st.just("DefaultRegion") | st.just("\ud800"),
    trace_on=st.booleans(),
)
def test_replies_are_those_of_the_ordinary_way(
    opaque: int, form: int, host: bytes, numbers: tuple[int, int, int], key: str, region: str,
    trace_on: bool,
) -> None:  # fmt: skip
    position, queue_id, offset = numbers
    send = make_plain(form, opaque, queue_id=queue_id, properties=f"UNIQ_KEY\x01{key}\x02")
    given_ = (send, host, position, offset, region, trace_on)
    usual: Any = unwrap(stored_reply)
    assert stored_reply(*given_) == usual(*given_)


def put(form: Any, send: Any, room: int, *more: Any) -> tuple[Any, bytes, bytes]:
    """What a form of `put_send` gives, and what it wrote."""
    records, entries = bytearray(700), bytearray(100)
    size = form(send, memoryview(records), 50, room, memoryview(entries), 40, *more)
    return size, bytes(records), bytes(entries)


@given(
    form=st.sampled_from(FORMS),
    fields=st.fixed_dictionaries(
        {"body": st.binary(min_size=1, max_size=200)},
        optional={
            "topic": ASCII.filter(lambda topic: topic[0] != "%"), "queue_id": NUMBERS,
            "flag": NUMBERS, "reconsume_times": NUMBERS, "born_timestamp": st.integers(0, 2**59),
        },
    ),
    room=st.sampled_from([0, 50, 300, 600]),
    numbers=st.tuples(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**62)),
    is_v6=st.booleans(),
    tail=st.sampled_from([b"", b"CLUSTER\x01c\x02", b"x" * 32_767]),
)  # fmt: skip
def test_a_record_is_written_with_its_entry_or_not_at_all(
    form: int, fields: dict[str, Any], room: int, numbers: tuple[int, int, int], is_v6: bool,
    tail: bytes,
) -> None:  # fmt: skip
    send = make_plain(form, **fields)
    offset, position, now_ms = numbers
    host, flags = (bytes(range(20)), 16) if is_v6 else (b"hostport", 0)
    more = (offset, position, flags, host, now_ms, b"12345678", send.topic.encode(), tail)
    usual: Any = unwrap(put_send)
    size, records, entries = put(put_send, send, room, *more)
    assert (size, records, entries) == put(usual, send, room, *more)
    assert size <= room
    assert (size == 0) == (records == bytes(700)) == (entries == bytes(100))


@pytest.mark.parametrize(("at", "entry_at"), [(-1, 0), (690, 0), (0, 81), (0, -20)])
def test_a_record_outside_of_its_map_is_not_written(at: int, entry_at: int) -> None:
    records, entries = bytearray(700), bytearray(100)
    with pytest.raises(ValueError, match="different structures"):
        put_send(
            make_plain(), memoryview(records), at, 600, memoryview(entries), entry_at,
            0, 0, 0, bytes(8), 0, bytes(8), b"T", b"",
        )  # fmt: skip


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
