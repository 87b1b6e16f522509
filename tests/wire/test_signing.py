"""Signed requests, compared with Java's AclClientRPCHook."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
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
    Signer,
    SigningKey,
    signed_by,
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
FIELDS = {"b": "orders", "a": "g", "i": PROPERTIES, "aa": "7"}
HUSH = SigningKey("hush")

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


def raw(fields: Mapping[str, Any], *, ascii_only: bool = False) -> msgspec.Raw:
    """Fields as a Java client sends them in JSON."""
    return msgspec.Raw(_json(fields, ascii_only))


def _json(value: object, ascii_only: bool) -> bytes:
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")).encode()


def packed(fields: dict[str, str]) -> PackedFields:
    """Fields as a client sends them in the compact form."""
    return read_pairs(write_pairs(fields))


def signed(fields: dict[str, str], body: bytes = b"") -> dict[str, str]:
    """Fields with the signature of alice, whose secret is HUSH; as `expected` makes it."""
    named = fields | {"AccessKey": "alice"}
    return named | {"Signature": expected(named, body, "hush")}


def who(
    fields: msgspec.Raw | PackedFields | dict[str, str], *wanted: str, body: bytes = b""
) -> tuple[str, tuple[str | None, ...]] | None:
    return signed_by(fields, body, {"alice": HUSH, "bob": SigningKey("sh")}, wanted)


SIGNED = signed(FIELDS)


@pytest.mark.parametrize("fields", [raw(SIGNED), raw(SIGNED, ascii_only=True), packed(SIGNED)])
def test_a_signed_header_gives_its_user_and_the_values_that_are_asked_for(
    fields: msgspec.Raw,
) -> None:
    values = "orders", None, SIGNED["Signature"], PROPERTIES, "alice"
    assert who(fields, "b", "none", "Signature", "i", "AccessKey") == ("alice", values)
    assert who(fields) == ("alice", ())


@pytest.mark.parametrize("made", [raw, packed])
def test_others_signatures_and_users_without_a_key_have_to_be_checked_in_full(
    made: Callable[[dict[str, str]], msgspec.Raw | PackedFields],
) -> None:
    proof = SIGNED["Signature"]
    for changed in (
        {"Signature": ""}, {"Signature": proof[:-1]}, {"Signature": proof + "="},
        {"Signature": "é"}, {"AccessKey": "bob"}, {"AccessKey": "eve"}, {"AccessKey": ""},
        {"b": "order"}, {"z": "more"}, {"i": PROPERTIES + "\0"},
    ):  # fmt: skip
        assert who(made(SIGNED | changed)) is None
    assert who(made(SIGNED), body=b"x") is None
    for name in ("Signature", "AccessKey", "b"):
        assert who(made({key: value for key, value in SIGNED.items() if key != name})) is None
    assert who(made({})) is None


def test_a_body_is_signed_whatever_holds_it() -> None:
    sent = raw(signed(FIELDS, b"body"))
    assert who(sent, body=b"body") == who(sent, body=memoryview(b"body")) == ("alice", ())  # type: ignore[arg-type]
    assert who(sent, body=b"Body") is None


@example(b"", 65_536)
@example(b"", 65_537)
@given(st.binary(max_size=300), st.integers(0, 300))
def test_signatures_of_bodies_of_any_length_hold(body: bytes, more: int) -> None:
    body += bytes(more)
    key = SigningKey("secret", "alice")
    sent = raw({**FIELDS, "AccessKey": "alice"})
    ext = text_fields(sent)
    assert ext is not None
    sent = raw({**ext, "Signature": key.signature(ext, body)})
    assert signed_by(sent, body, {"alice": key}, ()) == ("alice", ())
    assert signed_by(sent, body + b"x", {"alice": key}, ()) is None
    assert signed_by(sent, body, {"alice": SigningKey("secrets", "alice")}, ()) is None


@pytest.mark.parametrize("value", [None, 1, True, ["x"], {}])
def test_fields_that_are_no_texts_have_to_be_read_in_full(value: object) -> None:
    assert who(raw({**SIGNED, "z": value})) is None


@pytest.mark.parametrize(
    "fields",
    [
        msgspec.Raw(b"null"), msgspec.Raw(b"[]"), msgspec.Raw(b""),
        *(
            msgspec.Raw(_json(SIGNED, False)[:-1] + end)
            for end in (
                *(b"", b",}", b',"z":"\xff"}', b',"z":"\xed\xa0\x80"}'),
                *(b',"z":"\\ud800"}', b',"z":"\n"}'),
            )
        ),
        raw(signed({"a": "x", "_UNIQUE_KEY_QUERY": "true"})),
        packed(signed({"a": "x", "_UNIQUE_KEY_QUERY": "true"})),
        SIGNED,
    ],
)  # fmt: skip
def test_other_headers_have_to_be_read_in_full(fields: msgspec.Raw) -> None:
    assert who(fields) is None


def test_of_a_name_that_is_given_twice_the_last_value_counts() -> None:
    last = signed({"b": "y"})
    twice = '{"AccessKey":"root","b":"x","AccessKey":"alice","\\u0062":"y"'
    proof = f',"Signature":"{last["Signature"]}"}}'
    assert who(msgspec.Raw((twice + proof).encode()), "b") == ("alice", ("y",))
    pairs = write_pairs({"b": "x"}) + write_pairs(last)
    assert who(read_pairs(pairs), "b") == ("alice", ("y",))


@given(st.dictionaries(NAMES.filter(lambda name: name != "_UNIQUE_KEY_QUERY"), VALUES))
def test_any_texts_are_read_from_both_serialisations(fields: dict[str, str]) -> None:
    sent = signed(fields)
    for ascii_only in (False, True):
        found = who(raw(sent, ascii_only=ascii_only), "a", "b")
        assert found == ("alice", (fields.get("a"), fields.get("b")))
    filled = signed({name: value for name, value in fields.items() if value})
    assert who(packed(filled), "a", "b") == ("alice", (filled.get("a"), filled.get("b")))


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
    outcome_of_both(lambda: who(msgspec.Raw(header), "a", "b"))


@given(HEADERS, st.binary(max_size=3))
def test_nothing_is_accepted_that_the_fields_read_one_by_one_do_not_sign(
    header: bytes, body: bytes
) -> None:
    unsigned = text_fields(msgspec.Raw(header))
    if unsigned is None:
        return
    for covered in (unsigned, {name: v for name, v in unsigned.items() if name != "a"}):
        proof = HUSH.signature(covered, body)
        sent = header[:-1] + (b"," if unsigned else b"") + f'"Signature":"{proof}"}}'.encode()
        fields = text_fields(msgspec.Raw(sent))
        assert fields is not None
        name = fields.get("AccessKey", "")
        is_whole = "AccessKey" in fields and "_UNIQUE_KEY_QUERY" not in fields
        accepted = is_whole and HUSH.has_signed(fields, body, VERSION)
        answer = (name, (fields.get("a"),)) if accepted else None
        assert signed_by(msgspec.Raw(sent), body, {name: HUSH}, ("a",)) == answer
        assert signed_by(msgspec.Raw(sent), body + b"x", {name: HUSH}, ("a",)) is None


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
    for count in (61, 62, 63, 1_000):
        sent = signed({f"f{number}": str(number) for number in range(count)})
        assert who(raw(sent), "f7") == who(packed(sent), "f7") == ("alice", ("7",))


@pytest.mark.parametrize("made", [raw, packed])
def test_long_fields_that_the_compiled_form_leaves_are_not_read_here(
    made: Callable[[dict[str, str]], msgspec.Raw | PackedFields],
) -> None:
    many = {f"{number:03}": "v" * 64 for number in range(400)}
    assert who(made(signed(many))) is None
    few = {name: many[name] for name in list(many)[:100]}
    assert who(made(signed(few)), "007") == ("alice", ("v" * 64,))
