"""Signed requests, compared with Java's AclClientRPCHook."""

import json
from base64 import b64encode
from collections.abc import Callable
from hmac import digest
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.vector_lines import vector_lines

from roquet.model.errors import FieldError
from roquet.wire.calls.offset import MinOffset
from roquet.wire.calls.route import GetRoute
from roquet.wire.calls.send import Send
from roquet.wire.codes import FLAG_ONEWAY, VERSION, SerializeType
from roquet.wire.command import Command, decode
from roquet.wire.compact import PackedFields, read_pairs, write_pairs
from roquet.wire.fields import decode_call
from roquet.wire.frame import FrameReader
from roquet.wire.signing import (
    VERSION_WITHOUT_UNIQUE,
    Credentials,
    SignedHeader,
    Signer,
    SigningKey,
    signed_header,
    text_fields,
)

pytestmark = pytest.mark.usefixtures("form")

LINES = vector_lines("sign.jsonl")
KEYS = Credentials(access_key="ak", secret_key="sk", security_token="token")


def expected(ext: dict[str, str], body: bytes, secret: str = "sk") -> str:
    """Signature that a server computes from the received fields."""
    values = "".join(ext[name] for name in sorted(ext) if name != "Signature")
    return b64encode(digest(secret.encode(), values.encode() + body, "sha1")).decode()


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["in"]["access_key"])
def test_signatures_are_javas(line: dict[str, Any]) -> None:
    request, out = line["in"], line["out"]
    keys = {name: request[name] for name in ("access_key", "secret_key", "security_token")}
    body = bytes.fromhex(request["body"] or "")
    assert Signer(Credentials(**keys)).sign(request["ext"], body) == out["ext"]


@pytest.mark.parametrize("kind", SerializeType)
def test_both_serialisations_carry_a_signature_that_holds(kind: int) -> None:
    call = Send(
        body=b"\x00body", producer_group="g", topic="käse", queue_id=1, born_timestamp=7,
        properties="", unit_mode=True,
    )  # fmt: skip
    frame = Signer(KEYS).encode_call(call, opaque=9, serialize_type=kind)
    (whole,) = FrameReader().feed(frame)
    command = decode(whole)
    assert command.opaque == 9
    assert decode_call(command, Send) == call
    ext = command.ext
    assert (ext["AccessKey"], ext["SecurityToken"]) == ("ak", "token")
    assert ext["Signature"] == expected(ext, call.body)


def test_oneway_calls_are_signed_as_well() -> None:
    frame = Signer(KEYS).encode_call(MinOffset(topic="t", queue_id=0), opaque=1, oneway=True)
    (whole,) = FrameReader().feed(frame)
    command = decode(whole)
    assert command.flag == FLAG_ONEWAY
    assert command.ext["Signature"] == expected(command.ext, b"")


def test_the_compact_form_leaves_empty_values_out_which_java_would_read_as_null() -> None:
    call = Send(body=b"b", producer_group="g", topic="t", queue_id=0, born_timestamp=0)
    frame = Signer(KEYS).encode_call(call, opaque=1, serialize_type=SerializeType.ROCKETMQ)
    (whole,) = FrameReader().feed(frame)
    assert "i" not in decode(whole).ext
    assert call.properties == ""


def test_half_a_surrogate_pair_is_signed_as_java_does() -> None:
    signed = Signer(KEYS).sign({"topic": "a\ud800"}, b"")
    assert signed["Signature"] == expected({**signed, "topic": "a?"}, b"")


def test_a_signature_that_is_there_already_does_not_count() -> None:
    signer = Signer(KEYS)
    once = signer.sign({"topic": "t"}, b"b")
    assert signer.sign(once, b"b") == once


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=6), st.binary())
def test_a_change_of_any_value_breaks_the_signature(ext: dict[str, str], body: bytes) -> None:
    signer = Signer(Credentials(access_key="a", secret_key="s"))
    ext = {name: value.encode(errors="replace").decode() for name, value in ext.items()}
    signed = signer.sign(ext, body)
    for name in ext.keys() - {"AccessKey", "Signature"}:
        assert signer.sign({**ext, name: ext[name] + "x"}, body) != signed
    assert signer.sign(ext, body + b"x")["Signature"] != signed["Signature"]


def test_the_secret_is_not_printed() -> None:
    printed = f"{KEYS!r} {KEYS} {KEYS.__rich_repr__()}"
    assert "sk" not in printed
    assert "ak" in printed


def test_no_token_no_field() -> None:
    frame = Signer(Credentials(access_key="a", secret_key="s")).encode_call(
        GetRoute(topic="t"), opaque=1
    )
    (whole,) = FrameReader().feed(frame)
    assert "SecurityToken" not in decode(whole).ext


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["in"]["access_key"])
def test_javas_signatures_are_accepted_and_others_are_not(line: dict[str, Any]) -> None:
    body = bytes.fromhex(line["in"].get("body") or "")
    signed, secret = line["out"]["ext"], line["in"]["secret_key"]
    assert SigningKey(secret).has_signed(signed, body, VERSION)
    assert not SigningKey(secret + "x").has_signed(signed, body, VERSION)
    for forged in ("", "\u00e4\ud800"):
        assert not SigningKey(secret).has_signed({**signed, "Signature": forged}, body, VERSION)


def test_older_clients_leave_the_mark_of_a_unique_key_unsigned() -> None:
    fields = Signer(KEYS).sign({"topic": "t"}, b"")
    marked = {**fields, "_UNIQUE_KEY_QUERY": "true"}
    key = SigningKey(KEYS.secret_key)
    assert key.has_signed(marked, b"", VERSION_WITHOUT_UNIQUE)
    assert not key.has_signed(marked, b"", VERSION)


@given(st.text(min_size=1, max_size=200), st.binary(max_size=300))
@example("long" * 17, b"")
def test_keys_of_any_length_sign_as_hmac_does(secret: str, body: bytes) -> None:
    signature = b64encode(digest(secret.encode(), b"t" + body, "sha1")).decode()
    assert SigningKey(secret).signature({"topic": "t"}, body) == signature


def test_a_key_is_not_printed() -> None:
    assert "hush" not in f"{SigningKey('hush-hush')!r}"


def test_what_strangers_send_does_not_fill_the_memory_of_a_key() -> None:
    key = SigningKey("s")
    before = key.signature({"a": "1", "b": "2"}, b"")
    for number in range(1_000):
        assert not key.has_signed({f"x{number}": "", "y" * 2_000: ""}, b"", VERSION)
        assert not key.has_signed({f"x{number}": ""}, b"", VERSION)
    assert key.signature({"b": "2", "a": "1"}, b"") == before
    assert key.signature({}, b"") == b64encode(digest(b"s", b"", "sha1")).decode()


OutcomeOfBoth = Callable[[Callable[[], object]], object]

PROPERTIES = 'TAGS\x01é\x02KEYS\x01"k\\\x02'
FIELDS = {
    "b": "orders", "a": "g", "i": PROPERTIES, "Signature": "c2ln", "AccessKey": "alice", "aa": "7",
}  # fmt: skip

REQUIRED = {"a": "g", "b": "t", "c": "x", "d": "4", "e": "1", "f": "0", "g": "1", "h": "0"}

NAMES = st.sampled_from(
    ["a", "b", "aa", "ab", "AccessKey", "Signature", "Sig", "SignatureX", "_UNIQUE_KEY_QUERY", "é",
     "B", "~", "c"]
)  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(["", "x", "é", "\u20ac", "\U0001f600", "\x00", "\x7f", '"', "\\", "\x01\x02"]),
    st.text(max_size=6),
)
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=8)


def raw(fields: dict[str, Any], *, ascii_only: bool = False) -> msgspec.Raw:
    """Fields as a Java client sends them in JSON."""
    return msgspec.Raw(_json(fields, ascii_only))


def _json(value: object, ascii_only: bool) -> bytes:
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")).encode()


def packed(fields: dict[str, str]) -> PackedFields:
    """Fields as a client sends them in the compact form."""
    return read_pairs(write_pairs(fields))


def joined(fields: dict[str, str]) -> bytes:
    """Values in the order of their names."""
    return "".join(fields[name] for name in sorted(fields) if name != "Signature").encode()


@pytest.mark.parametrize("fields", [raw(FIELDS), raw(FIELDS, ascii_only=True), packed(FIELDS)])
def test_values_are_joined_in_the_order_of_their_names(fields: msgspec.Raw) -> None:
    assert signed_header(fields, ("b", "none", "Signature")) == SignedHeader(
        b"alice" + b"g" + b"7" + b"orders" + PROPERTIES.encode(), "alice", b"c2ln",
        ("orders", None, "c2ln"),
    )  # fmt: skip


@pytest.mark.parametrize("fields", [raw({}), packed({})])
def test_a_header_without_fields_has_an_empty_text(fields: msgspec.Raw) -> None:
    assert signed_header(fields, ("b",)) == SignedHeader(b"", None, b"", (None,))


@pytest.mark.parametrize(
    "fields",
    [
        raw({"a": None}), raw({"a": 1}), raw({"a": True}), raw({"a": ["x"]}), raw({"a": {}}),
        msgspec.Raw(b"null"), msgspec.Raw(b"[]"), msgspec.Raw(b""), msgspec.Raw(b'{"a":"x"'),
        msgspec.Raw(b'{"a":"\xff"}'), msgspec.Raw(b'{"a":"\xed\xa0\x80"}'),
        msgspec.Raw(b'{"a":"\\ud800"}'), msgspec.Raw(b'{"a":"\n"}'), msgspec.Raw(b'{"a":"x",}'),
        raw({"a": "x", "_UNIQUE_KEY_QUERY": "true"}), packed({"_UNIQUE_KEY_QUERY": "true"}),
        {"a": "x"},
    ],
)  # fmt: skip
def test_other_headers_have_to_be_read_in_full(fields: msgspec.Raw) -> None:
    assert signed_header(fields, ()) is None


def test_of_a_name_that_is_given_twice_the_last_value_counts() -> None:
    twice = msgspec.Raw(b'{"AccessKey":"root","b":"x","AccessKey":"alice","\\u0062":"y"}')
    assert signed_header(twice, ("b",)) == SignedHeader(b"alicey", "alice", b"", ("y",))
    pairs = write_pairs({"b": "x"}) + write_pairs({"b": "y", "a": "z"})
    assert signed_header(read_pairs(pairs), ("b",)) == SignedHeader(b"zy", None, b"", ("y",))


@given(st.dictionaries(NAMES.filter(lambda name: name != "_UNIQUE_KEY_QUERY"), VALUES))
def test_any_texts_are_read_from_both_serialisations(fields: dict[str, str]) -> None:
    wanted = ("a", "b")
    for ascii_only in (False, True):
        header = signed_header(raw(fields, ascii_only=ascii_only), wanted)
        assert header is not None
        assert (header.text, header.access_key) == (joined(fields), fields.get("AccessKey"))
        assert header.signature == fields.get("Signature", "").encode()
        assert header.values == tuple(map(fields.get, wanted))
    filled = {name: value for name, value in fields.items() if value}
    header = signed_header(packed(fields), wanted)
    assert header is not None
    assert (header.text, header.access_key) == (joined(filled), filled.get("AccessKey"))
    assert header.values == tuple(map(filled.get, wanted))


def json_of(pairs: list[tuple[str, str]], escaped: bool, odd: str) -> bytes:
    """A JSON object with these pairs, of which a name may be there twice, and an odd one."""
    texts = [f"{json.dumps(n)}:{json.dumps(v, ensure_ascii=escaped)}" for n, v in pairs]
    return ("{" + ",".join(texts + ([odd] if odd else [])) + "}").encode()


ODD = st.sampled_from(
    [
        "",
        "",
        "",
        '"z":null',
        '"z":1',
        '"z": "x"',
        '"z":"\\u00e9\\/"',
        '"z":"\\ud800"',
        '"\\u0061":"x"',
    ]
)
HEADERS = st.builds(json_of, PAIRS, st.booleans(), ODD)


@pytest.mark.parametrize("header", [b'{"a":"b"', b'{"a"\\"b"}'])
def test_both_forms_read_damaged_headers_alike(
    outcome_of_both: OutcomeOfBoth, header: bytes
) -> None:
    outcome_of_both(lambda: signed_header(msgspec.Raw(header), ("a", "b")))


@given(HEADERS, st.binary(max_size=3))
def test_nothing_is_accepted_that_the_fields_read_one_by_one_do_not_sign(
    header: bytes, body: bytes
) -> None:
    key = SigningKey("hush")
    unsigned = text_fields(msgspec.Raw(header))
    if unsigned is None:
        return
    for signed in (unsigned, {name: v for name, v in unsigned.items() if name != "a"}):
        signature = key.signature(signed, body)
        sent = header[:-1] + (b"," if unsigned else b"") + f'"Signature":"{signature}"}}'.encode()
        read = signed_header(msgspec.Raw(sent), ())
        fields = text_fields(msgspec.Raw(sent))
        assert fields is not None
        if read is not None:
            accepted = key.has_made(read.signature, read.text, body)
            assert accepted == key.has_signed(fields, body, VERSION)
            assert not key.has_made(read.signature, read.text, body + b"x")
            assert not key.has_made(read.signature[:-1], read.text, body)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", "d", "e", "g", "i", "k", "AccessKey", "x"]),
            st.sampled_from(["", "0", "7", "-1", " 7", "7.0", "1e1", "true", "false", "null", "t"]),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_a_handler_sees_the_values_that_were_checked(pairs: list[tuple[str, str, bool]]) -> None:
    sent = [(name, value, False) for name, value in REQUIRED.items()] + pairs
    texts = [f'"{_escaped(name) if is_escaped else name}":"{v}"' for name, v, is_escaped in sent]
    for fields in (
        msgspec.Raw(("{" + ",".join(texts) + "}").encode()),
        read_pairs(b"".join(write_pairs({name: value}) for name, value, _ in sent)),
    ):
        checked = text_fields(fields)
        assert checked is not None
        is_json = isinstance(fields, msgspec.Raw)
        assert checked == {name: value for name, value, _ in sent if value or is_json}
        decoded = _decoded(fields)
        if isinstance(decoded, Send) or len(sent) == len(checked):
            assert decoded == _decoded(checked)  # else an earlier value of a name may be refused


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)


def _decoded(fields: msgspec.Raw | PackedFields | dict[str, str]) -> Send | str:
    """The call that a handler gets, or the error."""
    try:
        return decode_call(Command(int(Send.code), fields=fields), Send)
    except FieldError as error:
        return str(error)


def test_more_fields_than_requests_have_are_left_to_the_python_form() -> None:
    for count in (63, 64, 65, 1_000):
        fields = {f"f{number}": str(number) for number in range(count)}
        header = signed_header(raw(fields), ("f7",))
        assert header == SignedHeader(joined(fields), None, b"", ("7",))
        assert signed_header(packed(fields), ("f7",)) == header


@pytest.mark.parametrize("made", [raw, packed])
def test_long_fields_that_the_compiled_form_leaves_are_not_read_here(
    made: Callable[[dict[str, str]], msgspec.Raw | PackedFields],
) -> None:
    many = {f"{number:03}": "v" * 64 for number in range(400)}
    assert signed_header(made(many), ()) is None
    few = {name: many[name] for name in list(many)[:100]}
    assert signed_header(made(few), ("007",)) == SignedHeader(joined(few), None, b"", ("v" * 64,))
